"""The middleware of Ray's proxies."""

import httpx
import pytest
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from gateway.cluster.environment import LOCAL_RAY, set_for_local_ray
from gateway.cluster.proxy import LostRequests, ValidHeaders, middlewares
from gateway.middleware.request_id import HEADER

pytestmark = pytest.mark.anyio


async def seen(scope: Scope) -> Scope:
    """Return the scope behind the middleware."""
    scopes: list[Scope] = []

    async def app(scope: Scope, _receive: Receive, _send: Send) -> None:
        scopes.append(scope)

    async def receive() -> Message:
        raise AssertionError

    async def send(_message: Message) -> None:
        raise AssertionError

    await ValidHeaders(app)(scope, receive, send)
    return scopes[0]


@pytest.mark.parametrize(
    ("given", "kept"),
    [([], False), ([b"mine"], True), ([b"mine", b"\xe9"], True), ([b""], False), ([b"x" * 129], False)],
)
async def test_a_request_has_one_valid_id(given: list[bytes], kept: bool) -> None:
    others = [(b"accept", b"*/*")]
    scope = {"type": "http", "headers": others + [(HEADER, value) for value in given]}
    first, (name, request_id) = (await seen(scope))["headers"]
    assert (first, name) == (others[0], HEADER)
    assert request_id == b"mine" if kept else request_id.startswith(b"req_")


@pytest.mark.parametrize(
    "name",
    [
        b"serve_multiplexed_model_id",
        b"Serve-Multiplexed-Model-Id",
        b"x-request-disconnect-disabled",
        b"x-request-timeout-seconds",
        b"x-session-id",
    ],
)
async def test_a_client_gives_ray_no_orders(name: bytes) -> None:
    scope = await seen({"type": "http", "headers": [(name, b"\xff"), (b"accept", b"*/*")]})
    assert [name for name, _ in scope["headers"]] == [b"accept", HEADER]


@pytest.mark.parametrize("whole", [True, False], ids=["answered", "lost"])
async def test_a_request_that_ray_leaves_without_a_response_is_an_error_to_retry(whole: bool) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if whole:
            await Response("an answer")(scope, receive, send)

    transport = httpx.ASGITransport(LostRequests(app))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        response = await client.get("/", headers={"x-request-id": "mine"})
    if whole:
        assert (response.status_code, response.text) == (200, "an answer")
        return
    assert (response.status_code, response.json()["error"]["code"]) == (503, "engine_died")
    assert (response.headers["x-request-id"], response.headers["x-should-retry"]) == ("mine", "true")


async def test_a_lifespan_has_no_response() -> None:
    async def app(_scope: Scope, _receive: Receive, _send: Send) -> None:
        """End without a message."""

    async def receive() -> Message:
        raise AssertionError

    async def send(_message: Message) -> None:
        raise AssertionError

    await LostRequests(app)({"type": "lifespan"}, receive, send)


async def test_a_scope_without_headers_is_passed_through() -> None:
    scope = {"type": "lifespan"}
    assert await seen(scope) is scope


def test_ray_finds_the_middleware_and_given_variables_stay() -> None:
    environment = {"RAY_DEDUP_LOGS": "1"}
    set_for_local_ray(environment)
    assert environment == LOCAL_RAY | {"RAY_DEDUP_LOGS": "1"}
    module, _, name = environment["RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH"].partition(":")
    assert (module, name) == (middlewares.__module__, middlewares.__name__)
    assert repr(middlewares()) == "[Middleware(LostRequests), Middleware(ValidHeaders)]"
