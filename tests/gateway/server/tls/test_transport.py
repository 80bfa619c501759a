"""Connections over TLS: the handshake in bounded time, whole answers, and clean ends."""

import socket
import ssl
from collections.abc import Callable
from pathlib import Path

import anyio
import anyio.lowlevel
import orjson
import pytest
from starlette.types import Receive, Scope, Send

from gateway.server.connection import Connection
from gateway.server.hypercorn.context import ServerContext
from gateway.server.limits import ServerLimits
from gateway.server.tls.transport import TlsTransport
from gateway.server.transport import StalledError, Transport
from tests.backends import TRIO_FIRST
from tests.gateway.server.apps import cut_short, hello, scoped, ticker
from tests.gateway.server.sockets import get, listen, post
from tests.gateway.server.test_connections import accepted
from tests.gateway.server.tls.certificates import authority, client_context, server_certificate, server_context
from tests.gateway.server.tls.clients import TlsClient, connect, secured, serving_tls

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", TRIO_FIRST)]

MUCH = b"0123456789" * 100_000


async def test_requests_are_answered_and_have_the_scheme_https() -> None:
    schemes = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        schemes.append(scope["scheme"])
        await hello(scope, receive, send)

    async with serving_tls(scoped(app)) as site:
        client = await secured(site)
        for path in ("/one", "/two"):
            client.write(post(path=path))
            assert (await client.answer()).body == path.encode() + b" {}"
    assert schemes == ["https", "https"]


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_large_bodies_arrive_whole(version: ssl.TLSVersion) -> None:
    context = client_context()
    context.minimum_version = context.maximum_version = version
    async with serving_tls(scoped(hello, body=1 << 21)) as site:
        client = TlsClient(site.port, context=context)
        site.clients.append(client)
        await client.handshake()
        await client.send(post(MUCH))
        assert (await client.answer()).body == b"/ " + MUCH


async def test_a_handshake_and_a_request_may_come_byte_by_byte() -> None:
    async with serving_tls(scoped(hello)) as site:
        client = connect(site)
        await client.send_slowly_encrypted(post(b"slow"))
        assert (await client.answer()).body == b"/ slow"


async def test_a_response_ends_with_close_notify() -> None:
    async with serving_tls(scoped(hello)) as site:
        client = await secured(site)
        client.write(get(headers="connection: close\r\n"))
        assert (await client.read_to_end()).endswith(b"0\r\n\r\n")
        assert client.close_notified


async def test_a_response_cut_short_has_no_close_notify(caplog: pytest.LogCaptureFixture) -> None:
    async with serving_tls(cut_short) as site:
        client = await secured(site)
        client.write(get(version="1.0"))
        with pytest.raises(ConnectionResetError):
            await client.read_to_end()
        assert not client.close_notified
    assert len(caplog.records) == 1


BEGINNINGS: dict[str, Callable[[bytes], bytes]] = {
    "silence": lambda _: b"",
    "half a ClientHello": lambda hello_: hello_[:100],
    "a ClientHello": lambda hello_: hello_,
}


@pytest.mark.parametrize("beginning", BEGINNINGS)
async def test_a_handshake_that_is_never_completed_ends_in_bounded_time(beginning: str) -> None:
    async with serving_tls(scoped(hello), ServerLimits(keep_alive_timeout=0.05)) as site:
        client = connect(site)
        client.sock.sendall(BEGINNINGS[beginning](client.begin()))
        await accepted(site)
        await site.server.count_falls_to(0)


async def test_slow_handshakes_do_not_hold_up_others() -> None:
    limits = ServerLimits(connections=5, keep_alive_timeout=1000, idle_grace=0)
    async with serving_tls(scoped(ticker), limits, listener=listen(backlog=64)) as site:
        neighbour = await secured(site)
        neighbour.write(get())
        await neighbour.read_until(b"0\n")
        for _ in range(20):
            slow = connect(site)
            slow.sock.sendall(slow.begin()[:50])
        late = await secured(site)
        late.write(get())
        await late.read_until(b"0\n")
        await neighbour.read_until(b"\n")


@pytest.mark.parametrize(
    "garbage", [b"\x16\x03\x01\xff\xff" + b"x" * 100, b"\x00" * 300, b"\x80\x2e\x01\x03\x01" + bytes(300)]
)
async def test_garbage_instead_of_a_handshake_ends_that_connection_only(
    garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving_tls(scoped(hello)) as site:
        client = connect(site)
        client.sock.sendall(garbage)
        assert await client.is_closed_by_server()
        other = await secured(site)
        other.write(get())
        assert (await other.answer()).status == 200
    assert not caplog.records


@pytest.mark.parametrize("request_", [get(), post(b"x" * 200_000), b"DELETE / HTTP/1.1\r\n"])
async def test_a_request_without_tls_gets_an_answer_and_a_clean_end(request_: bytes) -> None:
    async with serving_tls(scoped(hello)) as site:
        client = site.client()
        await client.send(request_)
        answer = await client.answer()
        assert (answer.status, answer.headers["connection"]) == (400, "close")
        assert orjson.loads(answer.body)["error"]["code"] == "https_required"
        assert await client.read_to_end() == b""


async def test_a_handshake_that_fails_ends_with_an_alert() -> None:
    context = client_context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("NULL-SHA256:@SECLEVEL=0")
    async with serving_tls(scoped(hello)) as site:
        client = TlsClient(site.port, context=context)
        site.clients.append(client)
        with pytest.raises(ssl.SSLError, match="alert"):
            await client.handshake()


@pytest.mark.parametrize("begun", ["handshake", "request", "neither"])
async def test_what_has_begun_when_the_server_stops_may_go_on(begun: str) -> None:
    context, (ours, theirs) = ServerContext(ServerLimits(linger=1000)), socket.socketpair()
    transport = TlsTransport(Transport(ours, 5), server_context())
    connection, client = Connection(scoped(hello), context, transport, ("127.0.0.1", 1)), TlsClient.on(theirs)

    async def stop() -> None:
        while transport.has_input():
            await anyio.lowlevel.checkpoint()
        context.terminated.set()
        connection.drain()

    with theirs, anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(connection.run)
            if begun == "handshake":
                theirs.sendall(client.begin())
                await stop()
                await client.complete()
                client.write(get())
            else:
                await client.handshake()
                record = client.encrypted(get())
                if begun == "request":
                    theirs.sendall(record[:9])
                await stop()
                if begun == "neither":
                    assert await client.read_to_end() == b""
                    return
                theirs.sendall(record[9:])
            assert (await client.answer()).body == b"/ "
            client.close()


async def test_every_step_of_a_handshake_waits_for_its_turn_and_may_be_cancelled() -> None:
    ours, theirs = socket.socketpair()
    granted = anyio.Event()
    server = TlsTransport(Transport(ours, 5), server_context(), granted.wait)
    client = TlsClient.on(theirs)
    client.sock.sendall(client.begin())
    for _ in range(2):
        with anyio.move_on_after(0.01) as waited:
            await server.receive()
        assert waited.cancelled_caught
    with pytest.raises(BlockingIOError):
        theirs.recv(1)
    granted.set()
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:

            async def write() -> None:
                await client.complete()
                client.write(b"a request")

            tasks.start_soon(write)
            assert await server.receive() == b"a request"
    server.close()
    client.close()


async def test_a_refused_client_is_read_no_further_even_if_that_was_cancelled() -> None:
    ours, theirs = socket.socketpair()
    server = TlsTransport(Transport(ours, 5), server_context())
    theirs.sendall(get())
    with anyio.move_on_after(0.01) as waited:
        await server.receive()
    assert waited.cancelled_caught
    theirs.sendall(get("/more"))
    theirs.shutdown(socket.SHUT_WR)
    assert await server.receive() == b""
    assert theirs.recv(100).startswith(b"HTTP/1.1 400 ")
    server.close()
    theirs.close()


async def test_a_client_that_does_not_read_the_handshake_is_given_up() -> None:
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    server = TlsTransport(Transport(ours, 0.05), chain_of(20), anyio.lowlevel.checkpoint)
    client = TlsClient.on(theirs)
    client.sock.sendall(client.begin())
    with anyio.fail_after(20), pytest.raises(StalledError):
        await server.receive()
    server.abort()
    client.close()


async def established() -> tuple[TlsTransport, TlsClient]:
    """Return both ends of a connection with small buffers."""
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    server = TlsTransport(Transport(ours, 0.05), server_context())
    client = TlsClient.on(theirs)
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.receive)
            await client.handshake()
            while not server._established:
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
    return server, client


async def test_a_client_that_negotiates_and_does_not_read_is_cut() -> None:
    server, client = await established()
    client.write(b"one")
    server._outgoing.write(b"an alert")
    with anyio.fail_after(20):
        assert await server.receive() == b"one"
        with pytest.raises(StalledError):
            await server.send(MUCH)
        server._outgoing.write(b"another")
        client.write(b"two")
        with pytest.raises(ssl.SSLError, match="does not read"):
            await server.receive()
    server.abort()
    client.close()


async def test_a_cancelled_send_still_delivers_all_its_bytes() -> None:
    server, client = await established()
    server._plain._write_timeout = 20
    received = b""
    with anyio.fail_after(20):
        with anyio.move_on_after(0) as cancelled:
            await server.send(MUCH)
        assert cancelled.cancelled_caught
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.send, b"second")
            while len(received) < len(MUCH) + 6:
                received += await client.receive()
    assert received == MUCH + b"second"
    server.close()
    client.close()


async def test_a_finish_with_unsent_bytes_is_a_reset_without_close_notify() -> None:
    server, client = await established()
    with anyio.move_on_after(0):
        await server.send(MUCH)
    server.finish()
    assert server.closed
    assert await client.is_closed()
    assert not client.close_notified
    client.close()


def chain_of(length: int) -> ssl.SSLContext:
    """Return a context whose certificates do not fit in a small buffer of the kernel."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate = server_certificate()
    with certificate.private_key_and_cert_chain_pem.tempfile() as path:
        with Path(path).open("ab") as file:
            file.write(length * authority().cert_pem.bytes())
        context.load_cert_chain(path)
    return context


async def test_a_shutdown_ends_idle_connections_and_handshakes() -> None:
    async with serving_tls(scoped(hello), ServerLimits(keep_alive_timeout=1000, linger=0.05)) as site:
        idle, slow = await secured(site), connect(site)
        slow.sock.sendall(slow.begin()[:50])
        while len(site.server.connections) < 2:
            await anyio.lowlevel.checkpoint()
        site.shutdown.set()
        assert await idle.read_to_end() == b""
        assert idle.close_notified
        await site.stopped.wait()
