"""The life of a connection: keep-alive, timeouts and close."""

import socket
from collections.abc import AsyncIterator

import anyio
import anyio.lowlevel
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.middleware.patience import STALLED
from gateway.middleware.streams.direct import direct_send_of
from gateway.server.connection import Connection
from gateway.server.hypercorn.context import ServerContext
from gateway.server.limits import ServerLimits
from gateway.server.transport import StalledError, Transport
from tests.gateway.server.apps import OK, chunk, hello, scoped
from tests.gateway.server.sockets import Site, get, post, serving

pytestmark = pytest.mark.anyio


async def stream(_request: Request) -> StreamingResponse:
    async def parts() -> AsyncIterator[bytes]:
        for part in (b"one ", b"two"):
            await anyio.lowlevel.checkpoint()
            yield part

    return StreamingResponse(parts())


STREAMING = Starlette(routes=[Route("/", stream)])
CLOSING = {
    "Connection: close": get(headers="connection: close\r\n"),
    "HTTP/1.0": get(version="1.0"),
    "HTTP/1.0 that asks to stay": get(headers="connection: keep-alive\r\n", version="1.0"),
}


async def send_lines(scope: Scope, _receive: Receive, send: Send) -> None:
    """Send two lines in each of three parts. The second part takes the short way."""
    await send({**OK, "headers": [(b"content-type", b"application/x-ndjson")]})
    await send(chunk(b"1\n22\n"))
    direct = direct_send_of(scope)
    assert direct is not None
    while not direct.ready:
        await anyio.lowlevel.checkpoint()
    direct.offer(b"3\n44\n")
    await send(chunk(b"5\n66", more=False))


async def test_each_line_of_json_is_a_chunk() -> None:
    async with serving(send_lines) as site:
        client = site.client()
        client.write(get())
        await client.read_until(b"\r\n\r\n")
        lines = [b"2\r\n%d\n\r\n3\r\n%d\n\r\n" % pair for pair in ((1, 22), (3, 44))]
        assert await client.read_until(b"0\r\n\r\n") == b"".join(lines) + b"2\r\n5\n\r\n2\r\n66\r\n0\r\n\r\n"


@pytest.mark.parametrize("app", [STREAMING, scoped(STREAMING)], ids=["bare", "scoped"])
@pytest.mark.parametrize("closing", CLOSING)
async def test_a_stock_streaming_response_closes_its_connection(closing: str, app: ASGIApp) -> None:
    async with serving(app, ServerLimits(keep_alive_timeout=1000, linger=1000)) as site:
        for _ in range(3):
            client = site.client()
            client.write(CLOSING[closing])
            received = await client.read_to_end()
            assert b"one " in received
            assert b"two" in received
            client.close()
        await site.server.count_falls_to(0)


@pytest.mark.parametrize("app", [STREAMING, scoped(STREAMING)], ids=["bare", "scoped"])
async def test_a_stock_streaming_response_keeps_its_connection(app: ASGIApp) -> None:
    async with serving(app, ServerLimits(keep_alive_timeout=1000, linger=0)) as site:
        client = site.client()
        for _ in range(3):
            client.write(get())
            assert (await client.answer()).body == b"one two"


@pytest.mark.parametrize("app", [STREAMING, scoped(STREAMING)], ids=["bare", "scoped"])
async def test_a_stock_streaming_response_keeps_its_connection_only_for_a_while(app: ASGIApp) -> None:
    async with serving(app, ServerLimits(keep_alive_timeout=0.2)) as site:
        client = site.client()
        client.write(get())
        assert (await client.answer()).body == b"one two"
        assert await client.read_to_end() == b""
        await site.server.count_falls_to(0)


@pytest.mark.parametrize("head", [b"", b"GET / HTTP/1.1\r\nhost: lo", b"\r\n"], ids=["silent", "slow", "empty line"])
async def test_a_head_that_does_not_come_closes_the_connection(head: bytes) -> None:
    async with serving(scoped(hello), ServerLimits(keep_alive_timeout=0.05)) as site:
        client = site.client()
        client.write(head) if head else None
        assert await client.read_to_end() == b""
        await site.server.count_falls_to(0)


async def test_a_running_request_may_outlast_the_keep_alive_timeout() -> None:
    release = anyio.Event()

    async def slow(_scope: Scope, _receive: Receive, send: Send) -> None:
        await release.wait()
        await send(OK)
        await send(chunk(b"at last", more=False))

    async with serving(scoped(slow), ServerLimits(keep_alive_timeout=0.01)) as site:
        client = site.client()
        client.write(post())
        with anyio.move_on_after(0.1):
            await client.receive()
        release.set()
        assert (await client.answer()).body == b"at last"


async def test_pipelined_requests_are_answered_in_order() -> None:
    async with serving(scoped(hello)) as site:
        client = site.client()
        client.write(b"".join(post(b"%d" % number, path=f"/{number}") for number in range(20)))
        answers = [await client.answer() for _ in range(20)]
        assert [answer.body for answer in answers] == [b"/%d %d" % (number, number) for number in range(20)]
        client.write(get("/after"))
        assert (await client.answer()).body == b"/after "


async def test_empty_lines_between_requests_are_skipped() -> None:
    async with serving(scoped(hello)) as site:
        client = site.client()
        client.write(b"\r\n" + post(b"1") + b"\r\n" + post(b"2") + b"\r\n\r\n")
        assert [(await client.answer()).body for _ in range(2)] == [b"/ 1", b"/ 2"]
        client.write(b"\r\n" + post(b"3"))
        assert (await client.answer()).body == b"/ 3"


@pytest.mark.parametrize("request_", [post(version="1.0"), post(headers="connection: close\r\n")], ids=["1.0", "close"])
async def test_a_line_end_after_the_last_request_is_no_error(request_: bytes) -> None:
    async with serving(scoped(hello)) as site:
        client = site.client()
        client.write(request_ + b"\r\n")
        answer = await client.answer()
        assert (answer.status, answer.body) == (200, b"/ {}")
        assert await client.read_to_end() == b""
        client.close()
        await site.server.count_falls_to(0)


async def test_a_request_may_come_byte_by_byte() -> None:
    async with serving(scoped(hello)) as site:
        client = site.client()
        for byte in post(b"slow"):
            client.write(bytes([byte]))
            await anyio.lowlevel.checkpoint()
        assert (await client.answer()).body == b"/ slow"


async def test_the_application_gets_the_path_query_and_headers() -> None:
    seen: list[Scope] = []

    async def look(scope: Scope, _receive: Receive, send: Send) -> None:
        seen.append(scope)
        await send(OK)
        await send(chunk(b"", more=False))

    async with serving(scoped(look)) as site:
        client = site.client()
        client.write(get("/a%20b?c=d"))
        answer = await client.answer()
        assert (answer.body, "server" in answer.headers, "date" in answer.headers) == (b"", False, True)
        (scope,) = seen
        assert (scope["path"], scope["query_string"], scope["scheme"]) == ("/a b", b"c=d", "http")
        assert (scope["client"], scope["server"]) == (client.sock.getsockname(), client.sock.getpeername())


async def test_a_connection_may_be_closed_before_it_runs() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        connection = Connection(hello, ServerContext(ServerLimits()), Transport(ours, 1), ("127.0.0.1", 1))
        connection.cancel_requests()
        connection.drain()
        assert (theirs.recv(1), connection.has_taken_all) == (b"", False)
        with anyio.fail_after(20):
            await connection.run()


async def test_a_connection_with_input_does_not_make_room() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        connection = Connection(hello, ServerContext(ServerLimits()), Transport(ours, 1), ("127.0.0.1", 1))
        theirs.send(b"G")
        assert not connection.close_idle()
        ours.recv(1)
        assert connection.close_idle()
        assert theirs.recv(1) == b""


async def test_an_offer_starts_a_task_only_for_bytes_that_the_kernel_leaves() -> None:
    ours, theirs = socket.socketpair()
    connection = Connection(hello, ServerContext(ServerLimits()), Transport(ours, 1), ("127.0.0.1", 1))
    with theirs:
        connection.offer(b"x")  # no task could start yet
        assert (theirs.recv(2), connection.reason) == (b"x", "")
    connection.offer(b"x")
    assert (connection.has_taken_all, connection.reason) == (False, "client reset the connection")


async def test_a_silent_connection_has_this_reason() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        context = ServerContext(ServerLimits(keep_alive_timeout=0))
        connection = Connection(hello, context, Transport(ours, 1), ("127.0.0.1", 1))
        await connection.run()
    assert connection.reason == "client was silent for too long"


@pytest.mark.parametrize(
    ("error", "reason"), [(StalledError(), STALLED), (anyio.ClosedResourceError(), "the server closed the connection")]
)
async def test_a_failure_to_read_is_a_reason(
    error: Exception, reason: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(*_: object) -> bytes:
        raise error

    monkeypatch.setattr(Transport, "receive", fail)
    ours, theirs = socket.socketpair()
    with theirs:
        connection = Connection(hello, ServerContext(ServerLimits()), Transport(ours, 1), ("127.0.0.1", 1))
        await connection.run()
    assert (connection.reason, caplog.records) == (reason, [])


WHY_OVER = {
    "complete": (get(headers="connection: close\r\n"), ""),
    "cut short": (get("/cut"), "response was cut short"),
    "cut short on HTTP/1.0": (get("/cut", version="1.0"), "response was cut short"),
    "broken": (b"nonsense\r\n\r\n", "client broke the protocol"),
}


@pytest.mark.parametrize("case", WHY_OVER)
async def test_a_connection_has_the_reason_of_its_end(case: str) -> None:
    request, reason = WHY_OVER[case]

    async def cut(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] != "/cut":
            await hello(scope, receive, send)
            return
        await send(OK)
        await send(chunk(b"so far"))

    async with serving(cut, ServerLimits(linger=1000)) as site:
        client = site.client()
        await accepted(site)
        (connection,) = site.server.connections
        client.write(request)
        assert await client.is_closed()
        assert connection.reason == reason


async def accepted(site: Site) -> None:
    while not site.server.connections:
        await anyio.lowlevel.checkpoint()


async def test_a_response_to_head_has_no_body() -> None:
    async with serving(scoped(hello)) as site:
        client = site.client()
        client.write(b"HEAD / HTTP/1.1\r\nhost: x\r\n\r\n")
        assert (await client.answer("HEAD")).body == b""
        client.write(get("/next"))
        assert (await client.answer()).body == b"/next "
