"""The origin guard: a foreign web page cannot use the server through its visitor's browser."""

import orjson
import pytest
from starlette.datastructures import Headers
from starlette.types import ASGIApp

from gateway.keys.ring import KeyRing
from gateway.middleware.origin import OpenPreflight, OriginGuard, ReadableResponses, is_same_origin
from tests.gateway.application import app_with_keys
from tests.gateway.asgi import AsgiCall
from tests.gateway.fake_engine import FakeEngine
from tests.gateway.server.apps import hello, scoped
from tests.gateway.server.sockets import serving

pytestmark = pytest.mark.anyio

ALLOWED = ("https://app.example", "http://localhost:3000")


def request(method: str = "POST", host: str = "127.0.0.1:8000", **headers: str) -> bytes:
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return f"{method} / HTTP/1.1\r\nhost: {host}\r\ncontent-length: 0\r\n{lines}\r\n".encode()


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://127.0.0.1:9", "http://app.example", "https://APP.example", ""]
)
async def test_a_foreign_page_is_refused(origin: str) -> None:
    async with serving(guarded()) as site:
        answer = await site.ask(request(origin=origin))
        error = orjson.loads(answer.body)["error"]
        assert (answer.status, error["code"]) == (403, "origin_not_allowed")
        assert "--allow-origin" in error["message"]
        assert answer.headers["x-request-id"]
        assert "access-control-allow-origin" not in answer.headers


async def test_the_preflight_of_a_foreign_page_is_refused() -> None:
    async with serving(scoped(OriginGuard(hello, ALLOWED))) as site:
        preflight = request("OPTIONS", origin="https://evil.example", access_control_request_method="POST")
        assert (await site.ask(preflight)).status == 403


async def test_a_request_without_an_origin_is_accepted() -> None:
    async with serving(scoped(OriginGuard(hello))) as site:
        assert (await site.ask(request(host="any.name"))).status == 200


def guarded() -> ASGIApp:
    return ReadableResponses(scoped(OriginGuard(hello, ALLOWED)), ALLOWED)


@pytest.mark.parametrize("origin", ALLOWED)
async def test_an_allowed_page_gets_its_cors_headers(origin: str) -> None:
    async with serving(guarded()) as site:
        answer = await site.ask(request(origin=origin))
        assert answer.status == 200
        assert answer.headers["access-control-allow-origin"] == origin
        assert "x-request-id" in answer.headers["access-control-expose-headers"]


@pytest.mark.parametrize("allowed", [ALLOWED, ("*",)])
@pytest.mark.parametrize(
    ("path", "headers", "body", "status"),
    [
        ("/v1/models", {}, b"", 401),
        ("/v1/chat/completions", {"authorization": "Bearer sk-other"}, b"{}", 401),
        ("/v1/chat/completions", {"authorization": "Bearer sk-1"}, b"x" * 2048, 413),
        ("/v1/chat/completions", {"authorization": "Bearer sk-1"}, b"{", 400),
        ("/none", {"authorization": "Bearer sk-1"}, b"", 404),
    ],
)
async def test_an_allowed_page_can_read_every_refusal(
    allowed: tuple[str, ...], path: str, headers: dict[str, str], body: bytes, status: int
) -> None:
    app = app_with_keys(KeyRing(["sk-1"]), FakeEngine(), allow_origin=allowed, body_limit=1024)
    given = {"origin": ALLOWED[0], "content-length": str(len(body)), **headers}
    call = await AsgiCall(app, path, body, method="POST" if body else "GET", headers=given).run()
    assert call.status == status
    assert call.start is not None
    received = Headers(raw=call.start["headers"])
    assert received["access-control-allow-origin"] in (ALLOWED[0], "*")
    assert len(received.getlist("access-control-allow-origin")) == 1
    assert "x-request-id" in received["access-control-expose-headers"]


@pytest.mark.parametrize("allowed", [ALLOWED, ("*",)])
async def test_an_allowed_page_gets_its_preflight(allowed: tuple[str, ...]) -> None:
    async with serving(scoped(OriginGuard(hello, allowed))) as site:
        answer = await site.ask(
            request(
                "OPTIONS",
                origin=ALLOWED[0],
                access_control_request_method="POST",
                access_control_request_headers="authorization, content-type",
                access_control_request_private_network="true",
            )
        )
        assert answer.status == 200
        assert answer.headers["access-control-allow-origin"] in (ALLOWED[0], "*")
        assert answer.headers["access-control-allow-headers"] == "authorization, content-type"


async def test_allowed_origins_are_case_insensitive() -> None:
    allowed = ["https://APP.example/"]
    async with serving(ReadableResponses(scoped(OriginGuard(hello, allowed)), allowed)) as site:
        answer = await site.ask(request(origin="https://app.example"))
        assert (answer.status, answer.headers["access-control-allow-origin"]) == (200, "https://app.example")


async def test_a_preflight_for_an_unsupported_method_is_refused_as_json() -> None:
    async with serving(scoped(OriginGuard(hello, ALLOWED))) as site:
        preflight = request("OPTIONS", origin=ALLOWED[0], access_control_request_method="FOO")
        answer = await site.ask(preflight)
        assert (answer.status, answer.headers["content-type"]) == (400, "application/json")
        assert orjson.loads(answer.body)["error"]["code"] == "method_not_allowed"


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "[::1]:8000", "192.168.1.5:8000", "localhost:8000", "localhost"])
async def test_a_page_of_this_server_is_accepted(host: str) -> None:
    async with serving(scoped(OriginGuard(hello))) as site:
        assert (await site.ask(request(host=host, origin=f"http://{host}"))).status == 200


async def test_a_page_with_a_rebound_host_name_is_refused() -> None:
    """DNS rebinding: its origin is its own host, which now resolves to this machine."""
    async with serving(scoped(OriginGuard(hello))) as site:
        assert (await site.ask(request(host="evil.example:8000", origin="http://evil.example:8000"))).status == 403


@pytest.mark.parametrize(
    ("origin", "host"),
    [("localhost", "localhost"), ("http://localhost", ""), ("http://", ""), ("http://[::1", "[::1"), ("null", "null")],
)
def test_odd_origins_are_foreign(origin: str, host: str) -> None:
    assert not is_same_origin(origin, host)


LOCAL_PAGES = ("http://localhost", "http://localhost:8080", "https://127.0.0.1:3000", "http://[::1]")
OTHERS = (
    "http://evil.example",
    "http://notlocalhost",
    "http://localhost.evil.example",
    "http://127.0.0.1.evil.example",
)


@pytest.mark.parametrize(("origin", "status"), [(page, 200) for page in LOCAL_PAGES] + [(page, 403) for page in OTHERS])
async def test_localhost_stands_for_the_pages_of_this_machine(origin: str, status: int) -> None:
    async with serving(ReadableResponses(scoped(OriginGuard(hello, ("localhost",))), ("localhost",))) as site:
        answer = await site.ask(request(origin=origin))
        assert answer.status == status
        assert answer.headers.get("access-control-allow-origin") == (origin if status == 200 else None)


@pytest.mark.parametrize(
    ("allowed", "origin", "answered"),
    [
        ("*", "web.example", True),
        ("localhost", "http://localhost:1", True),
        ("localhost", "http://evil.example", False),
    ],
)
async def test_an_open_preflight_has_llama_servers_headers_for_allowed_pages(
    allowed: str, origin: str, answered: bool
) -> None:
    async with serving(scoped(OpenPreflight(OriginGuard(hello, (allowed,)), (allowed,)))) as site:
        preflight = request("OPTIONS", origin=origin, access_control_request_method="POST")
        answer = await site.ask(preflight)
        assert answer.status == 200
        assert answer.headers.get("access-control-allow-origin") == (origin if answered else None)
        assert answer.headers.get("access-control-allow-headers") == ("*" if answered else None)
        assert (await site.ask(request())).status == 200
