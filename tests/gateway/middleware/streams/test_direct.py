"""Events that reach a client that keeps up without a wake-up of its request's task."""

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
import pytest
from starlette.types import Message, Receive, Scope, Send

from gateway.middleware.caller import Caller, caller_of, with_caller
from gateway.middleware.streams.direct import EXTENSION, DirectSend, Sink
from gateway.middleware.streams.sse import DONE, KEEP_ALIVE, EventStream, NextEvents, _DirectSink
from gateway.server.server import Server
from tests.gateway.server.apps import scoped
from tests.gateway.server.sockets import LEAVE, Client, get, serving
from tests.gateway.server.tls.clients import connected, tls_if

pytestmark = pytest.mark.anyio


class Live:
    """Events that a test sends while a task waits for them, as `DirectEvents`."""

    def __init__(self) -> None:
        self.sink: Sink | None = None
        self.waiting = False
        self.takes = 0
        self.left = anyio.Event()
        self._ready: list[bytes] = []
        self._ended = False
        self._news = anyio.Event()

    async def __call__(self) -> Iterable[bytes]:
        self.takes += 1
        self.waiting = True
        try:
            while not (self._ready or self._ended):
                self._news = anyio.Event()
                await self._news.wait()
        finally:
            self.waiting = False
        ready, self._ready = self._ready, []
        return ready

    def pass_on(self, sink: Sink) -> None:
        self.sink = sink

    def put(self, event: bytes) -> bool:
        """Send an event. Return whether it needed no task."""
        if self.waiting and not self._ready and self.sink is not None and self.sink.ready:
            self.sink.send([event])
            return True
        self._ready.append(event)
        self._news.set()
        return False

    def end(self) -> None:
        self._ended = True
        self._news.set()


class Site:
    """An application that streams the events of a source, and counts its messages."""

    server: Server

    def __init__(self) -> None:
        self.live = Live()
        self.sent: list[Message] = []
        self.caller = Caller(request_id="")
        self.app = scoped(self._serve)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        @asynccontextmanager
        async def source() -> AsyncIterator[NextEvents]:
            try:
                yield self.live
            finally:
                self.live.left.set()

        async def counted(message: Message) -> None:
            self.sent.append(message)
            await send(message)

        self.caller = caller_of(scope)
        await EventStream(source, keep_alive=1000.0)(scope, receive, counted)

    @property
    def sink(self) -> _DirectSink:
        assert isinstance(self.live.sink, _DirectSink)
        return self.live.sink

    async def begin(self, client: Client) -> None:
        """Let the stream begin, as its first event does."""
        await self.until_it_waits()
        assert not self.live.put(b"data: first\n\n"), "the head is not sent"
        await client.see(b"data: first\n\n")
        await self.until_it_waits()

    async def until_it_waits(self) -> None:
        while not self.live.waiting:
            await anyio.lowlevel.checkpoint()


@asynccontextmanager
async def begun(receive_buffer: int | None = None, *, secure: bool = False) -> AsyncIterator[tuple[Site, Client]]:
    """Serve a stream whose first event a client has."""
    site = Site()
    async with serving(site.app, tls=tls_if(secure)) as server:
        client = await connected(server, receive_buffer)
        client.write(get())
        site.server = server.server
        await site.begin(client)
        yield site, client


async def test_events_wake_no_task_while_the_client_keeps_up() -> None:
    numbers = [b"data: %d\n\n" % number for number in range(50)]
    async with begun() as (site, client):
        assert all(site.live.put(event) for event in numbers)
        site.live.end()
        answer = await client.answer()
    assert answer.body == b"data: first\n\n" + b"".join(numbers) + DONE
    assert len(site.sent) == 3, "the head, the first event and the end"
    assert site.live.takes == 2
    assert site.caller.exchange.sent == len(answer.body)


async def test_events_that_wake_no_task_have_no_ends_of_lines_inside_of_json() -> None:
    async with begun() as (site, client):
        assert site.live.put('data: "a\u2028b"\n\n'.encode())
        site.live.end()
        answer = await client.answer()
    assert answer.body == b'data: first\n\ndata: "a\\u2028b"\n\n' + DONE


async def test_an_event_without_bytes_does_not_end_the_body() -> None:
    async with begun() as (site, client):
        assert site.live.put(b"")
        assert site.live.put(b"data: 1\n\n")
        site.live.end()
        answer = await client.answer()
    assert answer.body == b"data: first\n\ndata: 1\n\n" + DONE


async def test_encrypted_connections_have_the_short_way_too() -> None:
    async with begun(secure=True) as (site, client):
        assert site.live.put(b"data: 1\n\n")
        await client.read_until(b"data: 1\n\n")


async def test_a_client_that_does_not_read_gets_all_later() -> None:
    large, last = b"data: " + b"x" * 65536 + b"\n\n", b"data: last\n\n"
    async with begun(receive_buffer=4096) as (site, client):
        sent = [large]
        while site.live.put(large):
            sent.append(large)
        sent.append(last)
        assert not site.live.put(last)
        site.live.end()
        answer = await client.answer()
    assert answer.body == b"data: first\n\n" + b"".join(sent) + DONE
    assert site.caller.exchange.sent == len(answer.body)


async def test_the_rest_of_an_event_follows_without_another_one() -> None:
    large = b"data: " + b"x" * 8 * 2**20 + b"\n\n"
    async with begun(receive_buffer=4096) as (site, client):
        assert site.live.put(large)
        assert not site.sink.ready, "the kernel has not taken it all"
        received = 0
        while received < len(large):
            received += len(await client.receive())
        while not site.sink.ready:
            await anyio.lowlevel.checkpoint()


@pytest.mark.parametrize("leave", LEAVE)
async def test_a_client_that_leaves_ends_the_stream(leave: str) -> None:
    async with begun() as (site, client):
        LEAVE[leave](client)
        while not site.live.left.is_set():
            if site.live.waiting:
                site.live.put(b"data: x\n\n")
            await anyio.lowlevel.checkpoint()
        await site.server.count_falls_to(0)
    assert site.caller.closed().reason


async def test_an_event_interrupts_the_silence() -> None:
    async with begun() as (site, client):
        silence, over = site.sink.silence, []
        for look in range(3):
            assert site.live.put(b"data: 1\n\n")
            silence.look(anyio.current_time() + 2000.0 * look)  # after twice the keep-alive
            over.append(silence.over)
        assert not any(over)
        silence.look(anyio.current_time() + 6000.0)
        assert silence.over
        await client.see(KEEP_ALIVE)
        await site.until_it_waits()
        assert site.sink.silence is not silence
        assert site.live.put(b"data: 2\n\n"), "after a comment, too"


@pytest.mark.parametrize("request_head", [get(version="1.0"), get().replace(b"GET", b"HEAD")], ids=["1.0", "HEAD"])
async def test_a_body_without_chunks_takes_the_usual_way(request_head: bytes) -> None:
    site = Site()
    async with serving(site.app) as server:
        client = server.client()
        client.write(request_head)
        while not site.live.waiting:
            await anyio.lowlevel.checkpoint()
        site.live.put(b"data: first\n\n")
        await site.until_it_waits()
        assert not site.live.put(b"data: 1\n\n")


async def test_other_servers_have_only_the_usual_way() -> None:
    site, sent = Site(), []

    async def receive() -> Message:
        await anyio.sleep_forever()
        raise AssertionError

    async def send(message: Message) -> None:
        sent.append(message)

    caller = Caller(request_id="r")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(site._serve, with_caller({"type": "http"}, caller), receive, send)
        await site.until_it_waits()
        for number in range(3):
            assert not site.live.put(b"data: %d\n\n" % number)
            await anyio.wait_all_tasks_blocked()
        site.live.end()
    assert len(sent) == 1 + 3 + 1
    assert site.live.sink is None


async def test_the_extension_is_ready_only_within_a_chunked_response() -> None:
    states: list[bool] = []

    async def app(scope: Scope, _receive: Receive, send: Send) -> None:
        direct: DirectSend = scope["extensions"][EXTENSION]
        look: Callable[[], None] = lambda: states.append(direct.ready)  # noqa: E731
        look()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        look()
        await send({"type": "http.response.body", "body": b"a", "more_body": True})
        look()
        await send({"type": "http.response.body", "body": b"b"})
        look()

    async with serving(app) as server:
        assert (await server.ask(get())).body == b"ab"
    assert states == [False, False, True, False]
