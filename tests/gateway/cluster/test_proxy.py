"""The middleware of Ray's proxies."""

import pytest
from starlette.types import Message, Receive, Scope, Send

from gateway.cluster.environment import LOCAL_RAY, set_for_local_ray
from gateway.cluster.proxy import ValidRequestIds, middlewares
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

    await ValidRequestIds(app)(scope, receive, send)
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


async def test_a_scope_without_headers_is_passed_through() -> None:
    scope = {"type": "lifespan"}
    assert await seen(scope) is scope


def test_ray_finds_the_middleware_and_given_variables_stay() -> None:
    environment = {"RAY_DEDUP_LOGS": "1"}
    set_for_local_ray(environment)
    assert environment == LOCAL_RAY | {"RAY_DEDUP_LOGS": "1"}
    module, _, name = environment["RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH"].partition(":")
    assert (module, name) == (middlewares.__module__, middlewares.__name__)
    assert repr(middlewares()) == "[Middleware(ValidRequestIds)]"
