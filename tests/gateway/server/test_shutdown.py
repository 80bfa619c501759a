"""Shutdown of the server in bounded time, with a definite answer to every connected client."""

import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import anyio
import anyio.lowlevel
import orjson
import pytest
from starlette.types import Receive, Scope, Send

from engine import Supervision
from gateway.middleware.streams.sse import FINAL_EVENT_TIMEOUT, EventStream, NextEvents
from gateway.server.connection import Connection
from gateway.server.hypercorn.context import ServerContext
from gateway.server.limits import ServerLimits
from gateway.server.server import Server
from gateway.server.transport import Transport
from tests.gateway.server.apps import OK, Probe, chunk, hello, scoped
from tests.gateway.server.sockets import Client, get, listen, post, serving

pytestmark = pytest.mark.anyio

PATIENT = ServerLimits(grace=1000, close_timeout=1000, keep_alive_timeout=1000, linger=0.05)
HASTY = ServerLimits(grace=0.05, close_timeout=0.05, linger=0.05)


async def test_listeners_and_idle_connections_close_at_once() -> None:
    async with serving(scoped(hello), PATIENT) as site:
        silent, idle = site.client(), site.client()
        idle.write(post())
        await idle.answer()
        site.shutdown.set()
        assert await silent.read_to_end() == b""
        assert await idle.read_to_end() == b""
        await site.stopped.wait()
        assert site.draining.is_set()
        with pytest.raises(ConnectionRefusedError):
            Client(site.port)


async def test_a_request_that_has_arrived_at_an_idle_connection_is_answered() -> None:
    async with serving(scoped(hello), replace(PATIENT, linger=1000)) as site:
        client = site.client()
        client.write(get())
        await client.answer()
        client.write(get("/late"))
        (connection,) = site.server.connections
        connection.drain()  # before the connection reads
        site.shutdown.set()
        assert (await client.answer()).body == b"/late "
        client.close()
        await site.stopped.wait()


async def test_a_request_whose_head_was_partly_read_is_answered() -> None:
    context, (ours, theirs) = ServerContext(replace(PATIENT, linger=1000)), socket.socketpair()
    transport, (line, rest) = Transport(ours, 1), (b"GET / HTTP/1.1\r\n", b"host: x\r\n\r\n")
    connection = Connection(scoped(hello), context, transport, ("127.0.0.1", 1))
    with theirs, anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(connection.run)
            theirs.send(line)
            while transport.has_input():
                await anyio.lowlevel.checkpoint()
            context.terminated.set()
            connection.drain()
            theirs.send(rest)
            await anyio.wait_readable(theirs)
            assert theirs.recv(1000).startswith(b"HTTP/1.1 200")
            theirs.shutdown(socket.SHUT_WR)


async def test_a_request_whose_head_stays_incomplete_does_not_delay_the_shutdown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving(scoped(hello), PATIENT) as site:
        client = site.client()
        client.write(get())
        await client.answer()
        monkeypatch.setattr(Transport, "has_input", lambda _transport: True)
        client.write(b"GET")
        site.shutdown.set()
        await site.stopped.wait()


async def test_a_client_that_was_just_accepted_does_not_delay_the_shutdown() -> None:
    context, (ours, theirs) = ServerContext(PATIENT), socket.socketpair()
    with theirs, anyio.fail_after(20):
        theirs.send(b"GET")
        connection = Connection(hello, context, Transport(ours, 1), ("127.0.0.1", 1))
        context.terminated.set()
        connection.drain()
        await connection.run()
        assert theirs.recv(1) == b""


async def test_a_running_request_may_end_within_the_grace_period(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if its client has sent another one, which has no time."""
    release, entered = anyio.Event(), anyio.Event()
    monkeypatch.setattr(Transport, "has_input", lambda _transport: True)

    async def slow(_scope: Scope, _receive: Receive, send: Send) -> None:
        entered.set()
        await release.wait()
        await send(OK)
        await send(chunk(b"done", more=False))

    async with serving(scoped(slow), replace(PATIENT, linger=0)) as site:
        client = site.client()
        client.write(post() + get("/never"))
        await entered.wait()
        site.shutdown.set()
        await site.draining.wait()
        release.set()
        answer = await client.answer()
        assert (answer.status, answer.body, answer.headers["connection"]) == (200, b"done", "close")
        assert await client.read_to_end() == b""
        client.close()
        await site.stopped.wait()


async def test_a_request_without_a_response_is_503_after_the_grace_period() -> None:
    probe = Probe()
    async with serving(scoped(probe), HASTY) as site:
        client = site.client()
        client.write(post())
        await probe.entered.wait()
        site.shutdown.set()
        answer = await client.answer()
        assert (answer.status, orjson.loads(answer.body)["error"]["code"]) == (503, "shutting_down")
        await site.stopped.wait()
    assert probe.closing.reason == "the server is shutting down"


async def test_a_request_without_its_body_is_503_after_the_grace_period() -> None:
    async with serving(scoped(hello), HASTY) as site:
        client = site.client()
        client.write(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\nexpect: 100-continue\r\n\r\n")
        await client.read_until(b"\r\n\r\n")
        site.shutdown.set()
        assert (await client.answer()).status == 503
        await site.stopped.wait()


class Source:
    """A source that yields one event, then waits; it records its close."""

    def __init__(self) -> None:
        self.left = anyio.Event()
        self._events: list[bytes] = [b"data: 1\n\n"]

    @asynccontextmanager
    async def __call__(self) -> AsyncIterator[NextEvents]:
        try:
            yield self._take
        finally:
            self.left.set()

    async def _take(self) -> Sequence[bytes]:
        if not self._events:
            await anyio.sleep_forever()
        return [self._events.pop()]


async def test_a_stream_ends_with_one_error_event_after_the_grace_period() -> None:
    source = Source()
    async with serving(scoped(EventStream(source)), HASTY) as site:
        client = site.client()
        client.write(get())
        await client.read_until(b"data: 1\n\n\r\n")
        site.shutdown.set()
        rest = await client.read_to_end()
        client.close()
        await site.stopped.wait()
    assert rest.count(b"data:") == 1
    assert b'data: {"error":{"message":"The server is shutting down."' in rest
    assert rest.endswith(b"\r\n0\r\n\r\n")
    assert source.left.is_set()


async def test_a_client_that_does_not_read_cannot_delay_the_shutdown() -> None:
    async def flood(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send(OK)
        blocked.set()
        while True:
            await send(chunk(b"x" * 65536))

    blocked = anyio.Event()
    async with serving(scoped(flood), HASTY) as site:
        client = site.client(receive_buffer=4096)
        client.write(get())
        await blocked.wait()
        site.shutdown.set()
        await site.stopped.wait()


async def test_an_event_stream_to_a_client_that_does_not_read_cannot_delay_the_shutdown() -> None:
    source = Source()
    source._take = flood_of_events  # type: ignore[method-assign]
    async with serving(scoped(EventStream(source)), HASTY) as site:
        client = site.client(receive_buffer=4096)
        client.write(get())
        await client.read_until(b"x")
        site.shutdown.set()
        await site.stopped.wait()
    assert source.left.is_set()


async def flood_of_events() -> Sequence[bytes]:
    return [b"x" * 65536]


async def test_an_application_that_ignores_events_is_cancelled_at_shutdown() -> None:
    entered, cancelled = anyio.Event(), anyio.Event()

    async def deaf(_scope: Scope, _receive: Receive, _send: Send) -> None:
        try:
            entered.set()
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            cancelled.set()
            raise

    async with serving(deaf, HASTY) as site:
        client = site.client()
        client.write(get())
        await entered.wait()
        site.shutdown.set()
        await site.stopped.wait()
        assert cancelled.is_set()
        assert await client.is_closed()


async def test_a_response_cut_by_the_shutdown_never_looks_complete_to_http_1_0() -> None:
    async def deaf(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send(OK)
        await send(chunk(b"so far"))
        await anyio.sleep_forever()

    async with serving(deaf, HASTY) as site:
        client = site.client()
        client.write(get(version="1.0"))
        await client.read_until(b"so far")
        site.shutdown.set()
        await site.stopped.wait()
        with pytest.raises(ConnectionResetError):
            await client.read_to_end()


async def test_a_connection_without_a_request_does_not_delay_the_shutdown() -> None:
    """Accepted at the moment of the shutdown, without a grace period."""
    async with serving(scoped(hello), ServerLimits(grace=0, close_timeout=0)) as site:
        site.client().write(b"GET")
        site.shutdown.set()
        await site.stopped.wait()


async def test_a_server_can_be_cancelled() -> None:
    probe = Probe()
    listener = listen()
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            server = Server(scoped(probe), PATIENT)
            tasks.start_soon(server.run, [listener], anyio.Event(), probe.entered.set)
            client = Client(listener.getsockname()[1])
            client.write(get())
            await probe.entered.wait()
            tasks.cancel_scope.cancel()
        assert await client.is_closed()
    client.close()
    assert probe.cancelled.is_set()
    assert listener.fileno() == -1


async def test_the_final_phase_outlasts_the_answer_timeout_and_the_final_error_event() -> None:
    assert ServerLimits().close_timeout > Supervision().answer_timeout + FINAL_EVENT_TIMEOUT
