"""Clients: the engine gets a name for the sender of each request and query, by which it shares itself fairly."""

import orjson
import pytest
from starlette.types import Scope

from engine import EmbeddingRequest, GenerationRequest
from gateway.keys.key import Key
from gateway.middleware.caller import Caller, client_of, digest_of_credentials
from gateway.serving.generations import fields_of
from tests.gateway.apis.openai.responses.asking import answering, chatting
from tests.gateway.apis.requests import EMBEDDINGS, EXTENDED, GENERATIONS, QUERIES, path_of
from tests.gateway.application import app_of
from tests.gateway.asgi import AsgiCall

pytestmark = pytest.mark.anyio


BODIES = {
    **GENERATIONS,
    **EMBEDDINGS,
    **QUERIES,
    "/v1/completions token ids": {"prompt": "x", "return_token_ids": True},
}


async def clients_of(name: str, key: str) -> set[str]:
    """Return the clients that the engine got with one request."""
    engine = chatting(answering("a"))
    headers = {"authorization": f"Bearer {key}"} if key else {}
    call = await AsgiCall(app_of(engine), path_of(name), orjson.dumps(BODIES[name]), headers=headers).run()
    assert call.status == 200
    sent = [generation.request.client for generation in engine.generations]
    return {*sent, *engine.clients, *(embedding.request.client for embedding in engine.embeddings)}


@pytest.mark.parametrize("name", BODIES)
async def test_every_request_and_query_has_its_client(name: str) -> None:
    (one,), (other,), (nameless,) = [await clients_of(name, key) for key in ("secret", "other", "")]
    assert one not in {other, nameless, ""}
    assert "secret" not in one
    assert nameless == ""
    assert await clients_of(name, "secret") == {one}


@pytest.mark.parametrize("name", GENERATIONS | EMBEDDINGS)
async def test_the_engine_gets_the_id_of_the_request(name: str) -> None:
    engine = chatting(answering("a"))
    call = await AsgiCall(app_of(engine), path_of(name), orjson.dumps(BODIES[name])).run()
    ids = [*(one.request.id for one in engine.generations), *(one.request.id for one in engine.embeddings)]
    assert set(ids) == {call.header("x-request-id")}


KEY = Key(id="key_1", name="the team", weight=4.0, priority=-2)
GENERATION = GenerationRequest(id="r", prompts=("x",))


def test_a_request_has_the_weight_and_the_priority_of_its_key() -> None:
    caller = Caller(request_id="r", client="key_1", key=KEY)
    for request in (GENERATION, EmbeddingRequest(id="r", inputs=("x",))):
        assert fields_of(caller, request) == {"id": "r", "client": "key_1", "weight": 4.0, "priority": -2}
    assert fields_of(caller, GENERATION.replaced(priority=0))["priority"] == 0, "its own comes first"


def test_without_a_key_all_clients_weigh_the_same() -> None:
    request = GENERATION.replaced(priority=3)
    sent = request.replaced(**fields_of(Caller(request_id="r", client="192.0.2.1"), request))
    assert (sent.client, sent.weight, sent.priority) == ("192.0.2.1", 1.0, 3)


@pytest.mark.parametrize("name", EXTENDED)
@pytest.mark.parametrize("priority", [-7, 0, None])
async def test_every_generation_may_have_a_priority(name: str, priority: int | None) -> None:
    engine = chatting(answering("a"))
    body = {**GENERATIONS[name], "priority": priority}
    call = await AsgiCall(app_of(engine), path_of(name), orjson.dumps(body)).run()
    assert call.status == 200
    assert [generation.request.priority for generation in engine.generations] == [priority]


def scope_of(*headers: tuple[bytes, bytes], address: tuple[str, int] | None) -> Scope:
    return {"type": "http", "headers": headers, "client": address}


def name_of(scope: Scope) -> str:
    return client_of(scope, digest_of_credentials(scope["headers"]))


def test_a_client_without_credentials_is_its_address_without_the_port() -> None:
    assert name_of(scope_of(address=("192.0.2.1", 4321))) == "192.0.2.1"
    assert name_of(scope_of(address=None)) == ""


def test_credentials_come_before_the_address() -> None:
    key = (b"Authorization", b"Bearer secret")
    names = {name_of(scope_of(key, address=(f"192.0.2.{n}", 1))) for n in range(3)}
    assert len(names) == 1
    assert not any(name.startswith("192") for name in names)
