"""Clients that stop reading: their requests end within a time limit."""

import anyio
import pytest
from starlette.types import Receive, Scope, Send

from gateway.middleware.caller import Cause, caller_of
from gateway.server.limits import ServerLimits
from tests.gateway.server.apps import OK, Probe, chunk, scoped, ticker
from tests.gateway.server.sockets import get, serving
from tests.gateway.server.tls.clients import WITH_AND_WITHOUT_TLS, connected, tls_if

pytestmark = pytest.mark.anyio


class Flood(Probe):
    """Streams as fast as possible."""

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        self.closing = caller_of(scope).closing
        try:
            await send(OK)
            self.entered.set()
            while True:
                await send(chunk(b"x" * 65536))
        except anyio.get_cancelled_exc_class():
            self.cancelled.set()
            raise


@WITH_AND_WITHOUT_TLS
async def test_the_write_timeout_cancels_the_request(secure: bool) -> None:
    flood = Flood()
    async with serving(scoped(flood), ServerLimits(write_timeout=0.1), tls=tls_if(secure)) as site:
        client = await connected(site, receive_buffer=4096)
        client.write(get())
        await flood.cancelled.wait()
        await site.server.count_falls_to(0)
        with pytest.raises(ConnectionResetError):
            await client.read_to_end()
    assert (flood.closing.reason, flood.closing.cause) == ("client stopped reading", Cause.SLOW_READER)


async def test_a_slow_reader_is_reported_as_a_disconnect() -> None:
    notified = anyio.Event()

    async def listen(receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        notified.set()

    async def flood(_scope: Scope, receive: Receive, send: Send) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listen, receive)
            await send(OK)
            while not notified.is_set():
                await send(chunk(b"x" * 65536))

    async with serving(flood, ServerLimits(write_timeout=0.1)) as site:
        site.client(receive_buffer=4096).write(get())
        await notified.wait()
        await site.server.count_falls_to(0)


@WITH_AND_WITHOUT_TLS
async def test_a_sender_that_ignores_the_hang_up_starves_no_other_stream(secure: bool) -> None:
    """The application sends for ever; another client's stream continues beside it."""
    neighbour_began, sent_beside_it = anyio.Event(), anyio.Event()

    async def ignorant(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/neighbour":
            neighbour_began.set()
            await ticker(scope, receive, send)
        await send(OK)
        while True:
            await send(chunk(b"x"))
            if neighbour_began.is_set():
                sent_beside_it.set()

    async with serving(ignorant, ServerLimits(grace=0, close_timeout=0), tls=tls_if(secure)) as site:
        client = await connected(site)
        client.write(get())
        await client.read_until(b"x")
        client.reset()
        neighbour = await connected(site)
        neighbour.write(get("/neighbour"))
        for number in range(5):
            await neighbour.read_until(b"%d\n" % number)
        await sent_beside_it.wait()


@WITH_AND_WITHOUT_TLS
async def test_a_cancelled_request_does_not_wait_for_its_reader(secure: bool) -> None:
    """The deadline passes while the application waits in `send`."""
    flood = Flood()
    async with serving(scoped(flood, request_timeout=0.1), tls=tls_if(secure)) as site:
        client = await connected(site, receive_buffer=4096)
        client.write(get())
        await flood.cancelled.wait()
        await site.server.count_falls_to(0)
    assert flood.closing.reason == "the request's deadline passed"
