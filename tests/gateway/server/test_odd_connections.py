"""Unusual connections: none of them affects the server or another client."""

import errno
import os
import socket

import anyio
import h2.config
import h2.connection
import orjson
import pytest
from starlette.types import Receive, Scope, Send

from gateway.server import transport
from gateway.server.limits import ServerLimits
from gateway.server.transport import Transport
from tests.gateway.server.apps import OK, chunk, cut_short, hello, scoped, ticker
from tests.gateway.server.sockets import Client, get, listen, post, serving

pytestmark = pytest.mark.anyio


def http2(headers: list[tuple[bytes, bytes]], body: bytes | None = None) -> bytes:
    """Return the bytes of a client that assumes HTTP/2."""
    config = h2.config.H2Configuration(validate_outbound_headers=False, normalize_outbound_headers=False)
    connection = h2.connection.H2Connection(config)
    connection.initiate_connection()
    connection.send_headers(1, headers, end_stream=body is None)
    if body is not None:
        connection.send_data(1, body, end_stream=True)
    return connection.data_to_send()


AUTHORITY = [(b":scheme", b"http"), (b":authority", b"localhost")]
ODD = {
    "h2c, path not ASCII": (http2([(b":method", b"GET"), (b":path", b"/\xff"), *AUTHORITY]), 505),
    "h2c, method not ASCII": (http2([(b":method", b"G\xff"), (b":path", b"/"), *AUTHORITY]), 505),
    "h2c, CONNECT without path": (http2([(b":method", b"CONNECT"), (b":authority", b"localhost")]), 505),
    "h2c, an upload": (http2([(b":method", b"POST"), (b":path", b"/"), *AUTHORITY], b"x" * 9000), 505),
    "CONNECT without target": (b"CONNECT  HTTP/1.1\r\nhost: x\r\n\r\n", 400),
    "path not ASCII": (b"GET /\xff HTTP/1.1\r\nhost: x\r\n\r\n", 400),
    "HTTP/3.0": (b"GET / HTTP/3.0\r\nhost: x\r\n\r\n", 505),
    "no host": (b"GET / HTTP/1.1\r\n\r\n", 400),
    "a coding beside chunked": (b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: zip, chunked\r\n\r\n", 501),
    "two lengths": (b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n", 400),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
    "a head in one piece, too large": (get(headers=f"a: {'x' * 9000}\r\n"), 431),
    "a head without end": (b"GET / HTTP/1.1\r\na: " + b"x" * 9000, 431),
}


@pytest.mark.parametrize("odd", ODD)
async def test_an_invalid_request_is_answered_and_its_connection_closed(odd: str) -> None:
    data, status = ODD[odd]
    async with serving(scoped(ticker), ServerLimits(head=8192, linger=0.05, grace=0)) as site:
        neighbour = site.client()
        neighbour.write(get())
        await neighbour.read_until(b"0\n")

        client = site.client()
        client.write(data)
        answer = await client.answer()
        assert (answer.status, answer.headers["connection"]) == (status, "close")
        assert answer.headers["x-request-id"].startswith("req_")
        assert (answer.headers["content-type"], answer.headers["x-should-retry"]) == ("application/json", "false")
        error = orjson.loads(answer.body)["error"]
        assert error["message"]
        assert (error["type"], error["param"], error["code"]) == ("invalid_request_error", None, "invalid_http")
        assert await client.is_closed()
        await site.server.count_falls_to(1)

        await neighbour.read_until(b"\n")
        await neighbour.read_until(b"\n")


async def test_a_refused_head_request_gets_no_body() -> None:
    async with serving(scoped(hello), ServerLimits(linger=0.05)) as site:
        client = site.client()
        client.write(b"HEAD / HTTP/3.0\r\nhost: x\r\nx-request-id: mine\r\n\r\n")
        head, _, rest = (await client.read_to_end()).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 505 ")
    assert b"x-request-id: mine" in head
    assert rest == b""


SWITCHES = {
    "h2c": get(headers="upgrade: h2c\r\nconnection: upgrade\r\n"),
    "websocket": get(headers="upgrade: websocket\r\nconnection: upgrade\r\n"),
    "CONNECT": b"CONNECT localhost:1 HTTP/1.1\r\nhost: x\r\n\r\n",
}


@pytest.mark.parametrize("switch", SWITCHES)
async def test_protocols_are_never_switched(switch: str) -> None:
    async def refuse(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({**OK, "status": 404})
        await send(chunk(b"not here", more=False))

    async with serving(scoped(refuse)) as site:
        answer = await site.ask(SWITCHES[switch])
        assert (answer.status, answer.body) == (404, b"not here")


@pytest.mark.parametrize(
    ("coding", "status", "code"), [("identity", 400, "invalid_http"), ("gzip", 415, "unsupported_encoding")]
)
async def test_a_malformed_body_has_one_answer_of_the_application(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, coding: str, status: int, code: str
) -> None:
    monkeypatch.setattr(transport, "SENDS_PER_YIELD", 1)
    headers = f"content-encoding: {coding}\r\ntransfer-encoding: chunked\r\n"
    async with serving(scoped(hello), ServerLimits(linger=0.05)) as site:
        for _ in range(10):
            client = site.client()
            client.write(f"POST / HTTP/1.1\r\nhost: x\r\n{headers}\r\nno size\r\n".encode())
            answer = await client.answer()
            assert (answer.status, orjson.loads(answer.body)["error"]["code"]) == (status, code)
            assert await client.read_to_the_close() == b""
        await site.server.count_falls_to(0)
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


async def test_data_after_an_early_413_is_discarded() -> None:
    async with serving(scoped(hello, body=10), ServerLimits(linger=0.05)) as site:
        client = site.client()
        client.write(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n")
        answer = await client.answer()
        assert (answer.status, answer.headers["connection"]) == (413, "close")
        client.write(b"x" * 1000)
        client.write(get())
        assert await client.read_to_end() == b""
        assert (await site.ask(post(b"fine"))).body == b"/ fine"
        await site.server.count_falls_to(0)


@pytest.mark.parametrize("length", ["declared", "chunked"])
async def test_an_early_reply_to_an_upload_leaks_no_connection(length: str) -> None:
    """The client writes megabytes that the server does not read, and still gets the answer rather than a reset."""
    size = 4 << 20
    declared = f"content-length: {size}\r\n" if length == "declared" else "transfer-encoding: chunked\r\n"
    head = f"POST / HTTP/1.1\r\nhost: x\r\n{declared}\r\n".encode()
    async with serving(scoped(hello, body=1 << 20)) as site:
        for _ in range(5):
            client = site.client()
            await client.send(head)
            await client.send(b"%x\r\n" % size + b"x" * size if length == "chunked" else b"x" * size)
            assert (await client.answer()).status == 413
            client.close()
        await site.server.count_falls_to(0)


async def test_an_application_that_never_reads_the_body_leaks_no_connection() -> None:
    async def deaf(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send(OK)
        await send(chunk(b"early", more=False))

    async with serving(deaf) as site:
        client = site.client()
        await client.send(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 8000000\r\n\r\n" + b"x" * 4_000_000)
        assert (await client.answer()).body == b"early"
        client.close()
        await site.server.count_falls_to(0)


async def test_an_unread_body_ends_the_connection() -> None:
    closed, notified = anyio.Event(), anyio.Event()

    async def slow(_scope: Scope, receive: Receive, _send: Send) -> None:
        await closed.wait()
        assert (await receive())["type"] == "http.request"
        assert (await receive())["type"] == "http.disconnect"
        notified.set()

    async with serving(slow, ServerLimits(unread=1000, unread_timeout=0.05)) as site:
        client = site.client()
        client.write(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 5000\r\n\r\n" + b"x" * 2000)
        assert await client.is_closed()
        closed.set()
        await notified.wait()


@pytest.mark.parametrize("begun", [False, True])
async def test_a_failing_application_ends_its_connection_only(begun: bool, caplog: pytest.LogCaptureFixture) -> None:
    async def fail(_scope: Scope, _receive: Receive, send: Send) -> None:
        if begun:
            await send(OK)
            await send(chunk(b"so far"))
        raise ExceptionGroup("two", [ValueError("one"), KeyError("other")])

    async with serving(fail, ServerLimits(linger=0.05)) as site:
        client = site.client()
        client.write(get())
        received = await client.read_to_end()
        assert received.startswith(b"HTTP/1.1 200" if begun else b"HTTP/1.1 500")
        assert not received.endswith(b"0\r\n\r\n")
        await site.server.count_falls_to(0)
    assert [record.getMessage() for record in caplog.records] == ["GET / failed"]


async def test_a_response_cut_short_never_looks_complete_to_http_1_0(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(cut_short) as site:
        client = site.client()
        client.write(get(version="1.0"))
        with pytest.raises(ConnectionResetError):
            await client.read_to_end()
    assert len(caplog.records) == 1


async def test_a_defect_in_the_protocol_ends_its_connection_only(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def defect(*_: object) -> None:
        raise KeyError("defect")

    async with serving(scoped(ticker), ServerLimits(grace=0)) as site:
        neighbour = site.client()
        neighbour.write(get())
        await neighbour.read_until(b"0\n")
        with monkeypatch.context() as patch:
            patch.setattr("gateway.server.hypercorn.http1.Http1.received", defect)
            client = site.client()
            client.write(get())
            assert await client.is_closed()
        await neighbour.read_until(b"\n")
    assert [record.getMessage() for record in caplog.records] == ["connection failed"]


class FullListener(socket.socket):
    """A listener that lost its first client already, and has no file descriptor for a while."""

    def __init__(self) -> None:
        super().__init__(fileno=listen().detach())
        self._failures = [OSError(errno.EMFILE, os.strerror(errno.EMFILE)) for _ in range(3)] + [BlockingIOError()]

    def accept(self) -> tuple[socket.socket, tuple[str, int]]:
        if self._failures:
            raise self._failures.pop()
        return super().accept()


async def test_a_lack_of_files_is_logged_once_and_the_client_is_accepted_after_it(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.server.server.ACCEPT_PAUSE", 0)
    async with serving(scoped(hello), listener=FullListener()) as site:
        assert (await site.ask(post(b"late"))).body == b"/ late"
    assert [record.getMessage() for record in caplog.records] == [
        f"cannot accept a client: [Errno {errno.EMFILE}] {os.strerror(errno.EMFILE)}"
    ]


class ListenerOfMacOS(socket.socket):
    """A listener whose first client has reset its connection before it was accepted, as macOS reports it."""

    accepted = 0

    def accept(self) -> tuple[socket.socket, tuple[str, int] | None]:
        sock, address = super().accept()
        self.accepted += 1
        return sock, address if self.accepted > 1 else None


async def test_a_client_without_an_address_is_closed() -> None:
    async with serving(scoped(hello), listener=ListenerOfMacOS(fileno=listen().detach())) as site:
        assert await site.client().is_closed()
        assert (await site.ask(post(b"later"))).body == b"/ later"


async def test_accepted_sockets_notice_vanished_hosts() -> None:
    async with serving(scoped(hello)) as site:
        await one_answer(site.client())
        (connection,) = site.server.connections
        assert isinstance(connection._transport, Transport)
        sock = connection._transport._sock
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        tcp = [
            sock.getsockopt(socket.IPPROTO_TCP, option)
            for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT, socket.TCP_USER_TIMEOUT)
        ]
        assert tcp == [15, 5, 3, 20_000]
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1


async def test_sockets_of_macos_notice_vanished_hosts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    option = socket.TCP_KEEPIDLE
    monkeypatch.setattr(socket, "TCP_KEEPALIVE", option, raising=False)
    monkeypatch.delattr(socket, "TCP_KEEPIDLE")
    monkeypatch.delattr(socket, "TCP_USER_TIMEOUT")
    with socket.socket() as sock:
        Transport(sock, 5).prepare()
        assert sock.getsockopt(socket.IPPROTO_TCP, option) == 15


async def one_answer(client: Client) -> None:
    client.write(post())
    assert (await client.answer()).status == 200


@pytest.mark.parametrize(
    ("target", "path"),
    [("http://localhost/health?x=1", "/health"), ("HTTP://localhost:8000", "/"), ("/http://x", "/http://x")],
)
async def test_a_target_may_name_the_whole_address(target: str, path: str) -> None:
    async with serving(scoped(hello), ServerLimits()) as site:
        answer = await site.ask(get(target))
    assert (answer.status, answer.body) == (200, path.encode() + b" ")
