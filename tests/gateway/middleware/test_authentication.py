"""API keys of requests: who is let in, before the body is read, and how the others are refused."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import orjson
import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.keys.key import Key
from gateway.keys.ring import KeyRing
from gateway.keys.secret import hash_of
from gateway.middleware.authentication import Authenticator
from gateway.middleware.caller import Caller, caller_of
from gateway.middleware.limits import RequestLimits
from gateway.middleware.request_scope import RequestScope
from gateway.server.limits import ServerLimits
from tests.gateway.apis.openai.responses.asking import PATH, answering, chatting
from tests.gateway.apis.requests import EMBEDDINGS, GENERATIONS, MESSAGES, QUERIES, path_of
from tests.gateway.application import app_of, app_with_keys
from tests.gateway.asgi import AsgiCall
from tests.gateway.fake_engine import FakeEngine
from tests.gateway.keys.memory_store import MemoryKeyStore
from tests.gateway.middleware.exchange import Exchange, part
from tests.gateway.server.apps import OK, chunk, hello
from tests.gateway.server.sockets import get, serving

pytestmark = pytest.mark.anyio

BODY = orjson.dumps({"prompt": "x"})
GIVEN = "sk-given"
WRONG: list[dict[str, str]] = [
    {},
    {"authorization": ""},
    {"authorization": "Bearer"},
    {"authorization": "Bearer "},
    {"authorization": "Bearer sk-other"},
    {"authorization": f"Basic {GIVEN}"},
    {"authorization": GIVEN},
    {"authorization": f"Bearer {GIVEN}x"},
    {"authorization": f"Bearer {GIVEN} {GIVEN}"},
    {"authorization": "Bearer sk-other", "x-api-key": GIVEN},
    {"x-api-key": "sk-other"},
    {"x-api-key": f"Bearer {GIVEN}"},
    {"cookie": f"authorization=Bearer {GIVEN}"},
]
RIGHT: list[dict[str, str]] = [
    {"authorization": f"Bearer {GIVEN}"},
    {"authorization": f"bearer  {GIVEN} "},
    {"x-api-key": GIVEN},
    {"authorization": "Basic cHJveHk6", "x-api-key": GIVEN},
]


def ring() -> KeyRing:
    return KeyRing([GIVEN])


async def call(app: ASGIApp, method: str, path: str, headers: dict[str, str], body: bytes = b"") -> AsgiCall:
    return await AsgiCall(app, path, body, method=method, headers=headers).run()


@pytest.mark.parametrize("headers", WRONG)
@pytest.mark.parametrize("path", ["/v1/completions", "/generate", "/no/such/path"])
async def test_a_request_without_a_valid_key_is_a_401_in_the_shape_of_its_api(
    headers: dict[str, str], path: str
) -> None:
    engine = FakeEngine()
    reply = await call(app_with_keys(ring(), engine), "POST", path, headers, BODY)
    assert (reply.status, reply.header("www-authenticate")) == (401, "Bearer")
    assert reply.json["error"]["code"] == "invalid_api_key"
    assert reply.json["error"]["type"] == "invalid_request_error"
    assert reply.json.get("success") is (False if path == "/generate" else None)
    assert GIVEN.encode() not in reply.content
    assert engine.generations == []


@pytest.mark.parametrize("headers", RIGHT)
async def test_a_valid_key_is_let_in(headers: dict[str, str]) -> None:
    assert (await call(app_with_keys(ring(), FakeEngine()), "POST", "/v1/completions", headers, BODY)).status == 200


@pytest.mark.parametrize("headers", [*WRONG, *RIGHT])
async def test_a_server_without_keys_needs_none(headers: dict[str, str]) -> None:
    assert (await call(app_of(FakeEngine()), "POST", "/v1/completions", headers, BODY)).status == 200


@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer sk-other"}])
async def test_the_health_is_open_and_else_only_what_the_operator_opens(headers: dict[str, str]) -> None:
    app = app_with_keys(ring(), FakeEngine(), open_path=("/slots", "/tokenize"))
    for method in ("GET", "HEAD"):
        for path in ("/health", "/v1/health"):
            assert (await call(app, method, path, headers)).status == 200
    assert (await call(app, "GET", "/slots", headers)).status == 200
    assert (await call(app, "POST", "/tokenize", headers, b'{"content": "x"}')).status == 200
    for method, path in (("GET", "/livez"), ("GET", "/readyz"), ("GET", "/ping"), ("POST", "/ping")):
        assert (await call(app, method, path, headers)).status == 200
    for path in ("/v1/models", "/health/", "//health", "/health/x", "/HEALTH", "/slots/", "/", "/version"):
        assert (await call(app, "GET", path, headers)).status == 401
    refused = await call(app, "GET", "/v1/models", headers)
    assert ("needs an API key" in refused.json["error"]["message"]) == (not headers), "or it is not valid"


async def test_a_preflight_request_of_a_page_needs_no_key() -> None:
    app = app_with_keys(ring(), FakeEngine(), allow_origin=("https://a.example",))
    page = {"origin": "https://a.example", "access-control-request-method": "POST"}
    assert (await call(app, "OPTIONS", "/v1/completions", page)).status == 200
    foreign = {**page, "origin": "https://b.example"}
    assert (await call(app, "OPTIONS", "/v1/completions", foreign)).status == 403
    del page["access-control-request-method"]
    assert (await call(app, "OPTIONS", "/v1/completions", page)).status == 401
    assert (await call(app, "POST", "/v1/completions", {"origin": "https://a.example"}, BODY)).status == 401


# Callers


async def caller_with(headers: list[tuple[bytes, bytes]], find: dict[str, Key], *, partition: bool) -> Caller:
    """Return the caller that an application sees."""
    callers: list[Caller] = []

    async def app(scope: Scope, _receive: Receive, send: Send) -> None:
        callers.append(caller_of(scope))
        await send(OK)
        await send(chunk(b"", more=False))

    exchange = Exchange(part(b""))
    exchange.scope = {**exchange.scope, "path": "/open", "headers": headers, "client": ("192.0.2.1", 1)}
    scoped = RequestScope(
        app, RequestLimits(), authenticate=Authenticator(find.get, ["/open"]), partition_cache=partition
    )
    await scoped(exchange.scope, exchange.receive, exchange.send)
    return callers[0]


@pytest.mark.parametrize("partition", [False, True])
async def test_the_identity_of_a_caller_is_its_key(partition: bool) -> None:
    key = Key(id="key_1", name="one")
    find = {"old": key, "new": key}
    asked = [(b"authorization", b"Bearer old"), (b"authorization", b"Bearer new"), (b"x-api-key", b"old")]
    callers = [await caller_with([header], find, partition=partition) for header in asked]
    identities = {(c.key, c.client, c.credentials, c.cache_partition) for c in callers}
    assert identities == {(key, "key_1", "key_1", "key_1" if partition else "")}


async def test_a_caller_without_a_key_on_an_open_path_is_anonymous() -> None:
    caller = await caller_with([], {}, partition=True)
    assert (caller.key, caller.client) == (None, "192.0.2.1")
    assert caller.credentials not in {"", "key_1"}


# Bodies


@pytest.mark.parametrize(
    "head",
    [
        b"POST / HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\n",
        b"GET /health HTTP/1.1\r\nhost: x\r\n",
        b"OPTIONS / HTTP/1.1\r\nhost: x\r\norigin: https://a.example\r\naccess-control-request-method: POST\r\n",
    ],
)
async def test_a_body_without_a_valid_key_is_not_read(head: bytes) -> None:
    app = RequestScope(hello, RequestLimits(), authenticate=Authenticator(ring().find))
    async with serving(app, ServerLimits(linger=0.05)) as site:
        for framing in (b"content-length: 8000000\r\n\r\n", b"transfer-encoding: chunked\r\n\r\n"):
            client = site.client()
            client.write(head + framing)
            answer = await client.answer()
            assert (answer.status, answer.headers["connection"]) == (401, "close")
            assert await client.is_closed()


async def test_the_connection_of_a_request_without_a_body_stays_open() -> None:
    app = RequestScope(hello, RequestLimits(), authenticate=Authenticator(ring().find))
    async with serving(app, ServerLimits(linger=0.05)) as site:
        client = site.client()
        client.write(get())
        assert (await client.answer()).status == 401
        client.write(get(headers=f"authorization: Bearer {GIVEN}\r\n"))
        assert (await client.answer()).status == 200
        client.close()


# Models and stored responses


@asynccontextmanager
async def keys_of_a_store() -> AsyncIterator[tuple[MemoryKeyStore, KeyRing]]:
    store = MemoryKeyStore()
    keys = KeyRing((), store)
    for name, models in (("alice", None), ("bob", None), ("carol", frozenset({"another"}))):
        await store.add(Key(id=f"key_{name}", name=name, models=models), hash_of(f"sk-{name}"))
    await keys.load()
    yield store, keys


def as_(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer sk-{name}"}


@pytest.mark.parametrize("name", [*GENERATIONS, *EMBEDDINGS, *QUERIES, "/apply-template"])
async def test_a_model_that_the_key_does_not_allow_is_a_403_on_every_route(name: str) -> None:
    body = orjson.dumps((GENERATIONS | EMBEDDINGS | QUERIES | {"/apply-template": {"messages": MESSAGES}})[name])
    engine = chatting(answering("a"))
    async with keys_of_a_store() as (_, keys):
        app = app_with_keys(keys, engine)
        assert (await call(app, "POST", path_of(name), as_("alice"), body)).status == 200
        done = len(engine.generations) + len(engine.embeddings)
        reply = await call(app, "POST", path_of(name), as_("carol"), body)
        assert (reply.status, b"This API key may not use the model " in reply.content) == (403, True)
        assert len(engine.generations) + len(engine.embeddings) == done


async def test_models_that_the_key_does_not_allow_are_not_listed() -> None:
    async with keys_of_a_store() as (_, keys):
        app = app_with_keys(keys, FakeEngine())
        listed = [await call(app, "GET", "/v1/models", as_(name)) for name in ("alice", "carol")]
        assert [[model["id"] for model in reply.json["data"]] for reply in listed] == [["tiny"], []]
        shown = [(await call(app, "GET", "/v1/models/tiny", as_(name))).status for name in ("alice", "carol")]
        assert shown == [200, 403]


async def test_a_stored_response_belongs_to_the_key_and_outlives_its_rotation() -> None:
    async with keys_of_a_store() as (store, keys):
        app = app_with_keys(keys, chatting(answering("Hello")))
        response_id = (await call(app, "POST", PATH, as_("alice"), b'{"input": "Hi"}')).json["id"]
        assert (await call(app, "GET", f"{PATH}/{response_id}", as_("bob"))).status == 404
        await store.rotate("key_alice", hash_of("sk-new"))
        await keys.poll()
        assert (await call(app, "GET", f"{PATH}/{response_id}", as_("alice"))).status == 401
        assert (await call(app, "GET", f"{PATH}/{response_id}", as_("new"))).status == 200


async def test_a_revoked_key_is_refused_after_the_next_look_at_the_store() -> None:
    async with keys_of_a_store() as (store, keys):
        app = app_with_keys(keys, FakeEngine())
        assert (await call(app, "GET", "/v1/models", as_("alice"))).status == 200
        await store.revoke("key_alice")
        await keys.poll()
        assert (await call(app, "GET", "/v1/models", as_("alice"))).status == 401


# Logs


async def test_the_log_has_no_secret(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    app = app_with_keys(ring(), FakeEngine(), strict_fields=True)
    for headers in (*RIGHT, {"authorization": "Bearer sk-other"}, {"x-api-key": "sk-other"}):
        for body in (BODY, b'{"prompt": 1}', b"{"):
            await call(app, "POST", "/v1/completions", headers, body)
    logged = caplog.text + "".join(repr(vars(record)) for record in caplog.records)
    assert GIVEN not in logged
    assert "sk-other" not in logged
