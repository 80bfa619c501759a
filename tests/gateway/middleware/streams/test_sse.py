"""A stream of server-sent events: its head, keep-alive and end."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager

import anyio
import anyio.lowlevel
import orjson
import pytest
from starlette.types import Message, Receive, Scope, Send

from engine.errors import Busy, EngineFault
from gateway.middleware.caller import Caller, Closing, with_caller
from gateway.middleware.errors import DEADLINE_PASSED, Problem, RefusedError
from gateway.middleware.streams import silence
from gateway.middleware.streams.blocks import BLOCK
from gateway.middleware.streams.silence import Silence, Silences
from gateway.middleware.streams.sse import KEEP_ALIVE, EventStream, NextEvents
from gateway.server.transport import Transport
from tests.gateway.server.apps import scoped
from tests.gateway.server.sockets import get, serving

pytestmark = pytest.mark.anyio

Step = Iterable[bytes] | Exception | Callable[[], Awaitable[Iterable[bytes]]]


class Script:
    """A source that plays steps: events to yield, an error to raise, or a function to await."""

    def __init__(self, *steps: Step, opening: Exception | None = None, leaving: Exception | None = None) -> None:
        self.steps = list(steps)
        self.opening = opening
        self.leaving = leaving
        self.left = False

    @asynccontextmanager
    async def __call__(self) -> AsyncIterator[NextEvents]:
        if self.opening:
            raise self.opening
        try:
            yield self.take
        finally:
            self.left = True
        if self.leaving:
            raise self.leaving

    async def take(self) -> Iterable[bytes]:
        step = self.steps[0]
        if callable(step):
            step = await step()
        self.steps.pop(0)
        if isinstance(step, Exception):
            raise step
        return step


class Known(Silences):
    """Silences that end only by the hand of a test."""

    def __init__(self) -> None:
        super().__init__()
        self.all: list[Silence] = []

    @contextmanager
    def watched(self, seconds: float) -> Iterator[Silence]:
        with super().watched(seconds) as silence:
            self.all.append(silence)
            yield silence

    def last(self, seconds: float) -> None:
        """Let the current silence last so long."""
        for now in (0.0, seconds):
            self.all[-1].look(now)


class Reader:
    """The server's side of one response."""

    def __init__(self, silences: Silences | None = None) -> None:
        self.messages: list[Message] = []
        self.silences = silences or Silences()
        self.closing = Closing()
        self.caller = Caller(request_id="req_1", closing=self.closing, silences=self.silences)
        self.scope = with_caller({"type": "http"}, self.caller)
        self.news = anyio.Event()

    async def receive(self) -> Message:
        raise AssertionError("only RequestScope receives")

    async def send(self, message: Message) -> None:
        self.messages.append(message)
        self.news.set()
        await anyio.lowlevel.checkpoint()  # like a full kernel buffer: the message is still accepted

    @property
    def bodies(self) -> list[bytes]:
        return [message["body"] for message in self.messages if message["type"] == "http.response.body"]

    @property
    def complete(self) -> bool:
        return bool(self.messages) and not self.messages[-1].get("more_body", True)

    async def run(self, stream: EventStream) -> None:
        await stream(self.scope, self.receive, self.send)

    async def run_until_cancelled(self, stream: EventStream, send: Send | None = None, *, gone: bool = False) -> None:
        """Run it until it waits, and cancel it: the client has left, or its deadline has passed."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stream, self.scope, self.receive, send or self.send)
            await anyio.wait_all_tasks_blocked()
            self.closing.reason, self.closing.error = "somebody", None if gone else RefusedError(DEADLINE_PASSED)
            tasks.cancel_scope.cancel()

    async def send_one(self, message: Message) -> None:
        """Take the head and one part of the body, and wait for ever."""
        await self.send(message)
        if len(self.bodies) == 1:
            await anyio.sleep_forever()

    async def run_with_comments(self, stream: EventStream) -> None:
        async with self.silences.open():
            await self.run(stream)


async def test_ready_events_are_sent_together() -> None:
    script = Script([b"data: 1\n\n", b"data: 2\n\n"], [b"data: 3\n\n"], [])
    reader = Reader()
    await reader.run(EventStream(script))
    assert reader.messages[0]["status"] == 200
    assert dict(reader.messages[0]["headers"]) == {
        b"content-type": b"text/event-stream; charset=utf-8",
        b"cache-control": b"no-cache",
        b"x-accel-buffering": b"no",
    }
    assert reader.bodies == [b"data: 1\n\ndata: 2\n\n", b"data: 3\n\n", b"data: [DONE]\n\n"]
    assert reader.complete
    assert script.left


async def test_clients_find_no_ends_of_lines_inside_of_json() -> None:
    """Python's clients of Ollama, and others that read by HTTPX, find ends of lines as `str.splitlines` does."""
    texts = [f"é{char}\\{char}" for char in "\n\x0b\x1e\u0085\u2028\u2029"]
    reader = Reader()
    await reader.run(EventStream(Script([b"data: %b\n\n" % orjson.dumps(text) for text in texts], []), end=b""))
    lines = reader.bodies[0].decode().splitlines()
    assert [orjson.loads(line.removeprefix("data: ")) for line in lines if line] == texts


async def test_the_head_waits_for_the_first_events() -> None:
    reader = Reader()
    release = anyio.Event()

    async def first() -> list[bytes]:
        await release.wait()
        return [b"data: 1\n\n"]

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(reader.run, EventStream(Script(first, [])))
        await anyio.wait_all_tasks_blocked()
        assert reader.messages == []
        release.set()
    assert reader.bodies == [b"data: 1\n\n", b"data: [DONE]\n\n"]


@pytest.fixture
def _quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silence, "TICK", 0.01)


@pytest.mark.usefixtures("_quick_looks")
async def test_keep_alive_comments_fill_silence() -> None:
    reader = Reader()
    release = anyio.Event()

    async def first() -> list[bytes]:
        await release.wait()
        return [b"data: 1\n\n"]

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(reader.run_with_comments, EventStream(Script(first, []), keep_alive=0.01))
            while len(reader.bodies) < 2:
                reader.news = anyio.Event()
                await reader.news.wait()
            release.set()
    assert reader.messages[0]["status"] == 200
    assert reader.bodies[:2] == [KEEP_ALIVE, KEEP_ALIVE]
    assert reader.bodies[-2:] == [b"data: 1\n\n", b"data: [DONE]\n\n"]
    assert not reader.silences._known, "those of streams that have ended are forgotten"


@pytest.mark.usefixtures("_quick_looks")
async def test_comments_have_the_status_of_the_source() -> None:
    reader, release, statuses = Reader(), anyio.Event(), ["", "queued, position 12", "queued, position 3"]

    async def first() -> list[bytes]:
        await release.wait()
        return [b"data: 1\n\n"]

    async def status() -> str:
        await anyio.lowlevel.checkpoint()
        if len(statuses) == 1:
            release.set()
        return statuses.pop()

    with anyio.fail_after(20):
        await reader.run_with_comments(EventStream(Script(first, []), keep_alive=0.01, status=status))
    assert reader.bodies[:3] == [b": queued, position 3\n\n", b": queued, position 12\n\n", KEEP_ALIVE]
    assert reader.bodies[-2:] == [b"data: 1\n\n", b"data: [DONE]\n\n"]


async def test_events_that_arrive_with_the_keep_alive_timeout_are_all_sent() -> None:
    silences = Known()

    def late(event: bytes) -> Callable[[], Awaitable[Sequence[bytes]]]:
        async def take() -> Sequence[bytes]:
            await anyio.lowlevel.cancel_shielded_checkpoint()
            silences.all[-1].end()  # with events ready
            return [event]

        return take

    numbers = [b"data: %d\n\n" % number for number in range(5)]
    reader = Reader(silences=silences)
    with anyio.fail_after(20):
        await reader.run(EventStream(Script(*map(late, numbers), [])))
    assert reader.bodies == [*numbers, b"data: [DONE]\n\n"]
    assert len(silences.all) == len(numbers) + 1


async def test_a_send_is_no_silence() -> None:
    silences = Known()
    reader = Reader(silences=silences)

    async def send(message: Message) -> None:
        await reader.send(message)
        silences.last(seconds=60)
        await anyio.lowlevel.checkpoint()

    stream = EventStream(Script([b"data: 1\n\n"], []), keep_alive=10)
    await stream(reader.scope, reader.receive, send)
    assert reader.bodies == [b"data: 1\n\n", b"data: [DONE]\n\n"]
    assert len(reader.messages) == 3, "the head and two parts"


async def test_a_silence_after_events_is_filled_too() -> None:
    silences = Known()
    reader = Reader(silences=silences)

    async def silent() -> list[bytes]:
        if KEEP_ALIVE not in reader.bodies:
            silences.last(seconds=60)
            await anyio.lowlevel.checkpoint()
        return []

    await reader.run(EventStream(Script([b"data: 1\n\n"], [b"data: 2\n\n"], silent), keep_alive=10))
    assert reader.bodies == [b"data: 1\n\n", b"data: 2\n\n", KEEP_ALIVE, b"data: [DONE]\n\n"]


async def test_events_without_bytes_do_not_interrupt_a_silence() -> None:
    """Text that a parser holds back, as that of a long call, is no sign of life."""
    silences = Known()
    reader = Reader(silences=silences)

    def held_back(now: float) -> Callable[[], Awaitable[Iterable[bytes]]]:
        async def take() -> Iterable[bytes]:
            if KEEP_ALIVE not in reader.bodies:
                silences.all[-1].look(now)
                await anyio.lowlevel.checkpoint()
            return iter(())

        return take

    steps = [held_back(now) for now in (0.0, 6.0, 12.0)]
    await reader.run(EventStream(Script([b"data: 1\n\n"], *steps, []), keep_alive=10))
    assert reader.bodies == [b"data: 1\n\n", KEEP_ALIVE, b"data: [DONE]\n\n"]


@pytest.mark.parametrize(("seconds", "over"), [(9.9, False), (10.0, True)])
async def test_a_silence_is_over_after_its_time(seconds: float, over: bool) -> None:
    with Silences().watched(10.0) as silence:
        for now in (100.0, 100.0 + seconds):
            silence.look(now)
        assert silence.over == over


async def test_an_event_costs_one_write_and_no_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted over the wire: the head with the first event, each other one, the end of the stream and of the body."""
    waits, writes = [], []

    class Counted(Silence):
        def __init__(self, seconds: float) -> None:
            waits.append(seconds)
            super().__init__(seconds)

    async def send(transport: Transport, data: bytes) -> None:
        writes.append(data)
        await real_send(transport, data)

    real_send = Transport.send
    monkeypatch.setattr(Transport, "send", send)
    monkeypatch.setattr(silence, "Silence", Counted)
    async with serving(scoped(EventStream(Script(*([b"data: 1\n\n"] for _ in range(50)), []), keep_alive=77))) as site:
        answer = await site.ask(get())
    assert answer.body.count(b"data: 1\n\n") == 50
    assert len(writes) == 50 + 2
    assert waits == [77]


@pytest.mark.parametrize("where", ["opening", "first events"])
async def test_a_failure_before_the_head_is_raised_as_it_is(where: str) -> None:
    full = Busy("Full.", code="queue_full")
    script = Script(opening=full) if where == "opening" else Script(full)
    reader = Reader()
    with pytest.raises(Busy):
        await reader.run(EventStream(script))
    assert reader.messages == []


@pytest.mark.parametrize("where", ["events", "leaving"])
async def test_a_failure_after_the_head_is_one_error_event(where: str) -> None:
    fault = EngineFault("The engine died.", code="engine_died")
    script = Script([b"data: 1\n\n"], fault) if where == "events" else Script([b"data: 1\n\n"], [], leaving=fault)
    reader = Reader()
    await reader.run(EventStream(script))
    first, last = reader.bodies
    assert first == b"data: 1\n\n"
    assert orjson.loads(last.removeprefix(b"data: ")) == {
        "error": {"message": "The engine died.", "type": "server_error", "param": None, "code": "engine_died"}
    }
    assert last.endswith(b"}\n\n")
    assert reader.complete
    assert script.left
    assert reader.caller.exchange.error == "engine_died"


async def test_a_defect_after_the_head_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    reader = Reader()
    await reader.run(EventStream(Script([b"data: 1\n\n"], ValueError("a secret"))))
    assert b"secret" not in reader.bodies[-1]
    assert b"internal_error" in reader.bodies[-1]
    assert "a secret" in caplog.text


async def test_the_end_and_the_error_encoding_are_configurable() -> None:
    def encode(problem: Problem) -> bytes:
        return f"data: {problem.code}\n\n".encode()

    reader = Reader()
    await reader.run(EventStream(Script([b"data: 1\n\n"], []), end=b"", encode_failure=encode))
    assert reader.bodies == [b"data: 1\n\n", b""]
    reader = Reader()
    await reader.run(EventStream(Script([b"data: 1\n\n"], Busy("Full.", code="full")), end=b"", encode_failure=encode))
    assert reader.bodies == [b"data: 1\n\n", b"data: full\n\n"]


async def forever() -> list[bytes]:
    await anyio.sleep_forever()
    return []


@pytest.mark.parametrize("gone", [False, True])
async def test_a_cancel_after_the_head_ends_in_at_most_one_error_event(gone: bool) -> None:
    """The source is closed first; then, if the client is still connected, one error event follows."""
    script = Script([b"data: 1\n\n"], forever)
    reader = Reader()
    returned = False

    class Noting(EventStream):
        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            nonlocal returned
            await super().__call__(scope, receive, send)
            returned = True

    await reader.run_until_cancelled(Noting(script), gone=gone)
    assert script.left
    assert not returned, "the cancellation goes on"
    assert reader.complete is not gone
    assert len(reader.bodies) == (1 if gone else 2)
    assert b"DONE" not in b"".join(reader.bodies)


async def test_an_event_that_a_block_has_cut_is_sent_whole_before_the_error_event() -> None:
    reader = Reader()
    event = [b"data: ", bytes(BLOCK), b"", b"\n\n"]
    await reader.run_until_cancelled(EventStream(Script([*event, *event])), reader.send_one)
    first, last, end = b"".join(reader.bodies).split(b"\n\n")
    assert first == b"".join(event).removesuffix(b"\n\n")
    assert (last.startswith(b'data: {"error"'), end) == (True, b"")


async def test_no_event_begins_before_the_error_event_of_a_cancelled_stream() -> None:
    """It would be encoded after the error, and so have a wrong number."""
    reader = Reader()
    stream = EventStream(Script([bytes(BLOCK) + b"\n\n", b"data: 2\n\n"]))
    await reader.run_until_cancelled(stream, reader.send_one)
    assert reader.bodies[-1].startswith(b'data: {"error"')


async def test_the_error_event_of_a_cancelled_stream_may_wait_for_its_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.middleware.streams.sse.FINAL_EVENT_TIMEOUT", 1000.0)
    reader, waits, reads = Reader(), anyio.Event(), anyio.Event()

    async def send(message: Message) -> None:
        if reader.closing.error is not None:
            waits.set()
            await reads.wait()
        await reader.send(message)

    async def read() -> None:
        await waits.wait()
        await anyio.wait_all_tasks_blocked()
        reads.set()

    async with anyio.create_task_group() as client:
        client.start_soon(read)
        await reader.run_until_cancelled(EventStream(Script([b"data: 1\n\n"], forever)), send)
    assert reader.complete


async def test_a_cancel_before_the_head_sends_no_bytes() -> None:
    reader = Reader()
    await reader.run_until_cancelled(EventStream(Script(forever)))
    assert reader.messages == []


async def test_the_final_error_event_is_sent_within_a_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.middleware.streams.sse.FINAL_EVENT_TIMEOUT", 0.01)
    reader = Reader()

    async def send(message: Message) -> None:
        if reader.closing.error is not None:
            await anyio.sleep_forever()
        await reader.send(message)

    with anyio.fail_after(20):
        await reader.run_until_cancelled(EventStream(Script([b"data: 1\n\n"], forever)), send)
    assert not reader.complete


async def test_the_time_limit_of_the_final_event_does_not_count_what_comes_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gateway.middleware.streams.sse.FINAL_EVENT_TIMEOUT", 0.05)
    reader = Reader()
    stored = False

    async def store() -> None:
        nonlocal stored
        await anyio.sleep(0.1)
        stored = True

    await reader.run_until_cancelled(EventStream(Script([b"data: 1\n\n"], forever), after_failure=store))
    assert stored
    assert b'"code":"deadline_exceeded"' in reader.bodies[-1]


async def test_a_deadline_ends_a_stream_over_the_wire_in_an_error_event() -> None:
    script = Script([b"data: 1\n\n"], forever)
    async with serving(scoped(EventStream(script), request_timeout=0.1)) as site:
        client = site.client()
        client.write(get())
        answer = await client.answer()
        assert answer.status == 200
        assert answer.headers["x-request-id"].startswith("req_")
        first, last = answer.body.split(b"\n\n", 1)
        assert first == b"data: 1"
        assert b'"code":"deadline_exceeded"' in last
        assert script.left
