"""The bytes of one stream that is kept, and their readers."""

import anyio
import anyio.lowlevel
import pytest
from starlette.types import Message

from gateway.middleware.caller import Caller, Cause, Closing, with_caller
from gateway.middleware.conventions import OPENAI
from gateway.middleware.errors import DEADLINE_PASSED, RefusedError
from gateway.middleware.streams import kept_stream
from gateway.middleware.streams.blocks import BLOCK
from gateway.middleware.streams.kept_stream import KeptStream
from gateway.middleware.streams.sse import EVENTS

pytestmark = pytest.mark.anyio


class Kept:
    """A stream that is kept, and one reader of it."""

    def __init__(self) -> None:
        self.stream = KeptStream("owner", "name", Closing(), EVENTS, OPENAI)
        self.caller = Caller(request_id="r")
        self.bodies: list[bytes] = []
        self.stops_reading = False

    async def put(self, body: bytes) -> None:
        await self.stream.send({"type": "http.response.body", "body": body})

    async def read(self) -> None:
        scope = with_caller({"type": "http"}, self.caller)
        await self.stream.reader(self.caller)(scope, self._receive, self._send)

    async def end_when_stopped(self, last: bytes) -> None:
        """Let the work write its last bytes and end some time after it was stopped."""
        while not self.stream.closing.reason:
            await anyio.lowlevel.checkpoint()
        for _ in range(3):
            await anyio.lowlevel.checkpoint()
        await self.put(last)
        self.stream.end()

    async def _receive(self) -> Message:
        raise AssertionError

    async def _send(self, message: Message) -> None:
        self.bodies.append(message.get("body", b""))
        if self.stops_reading and message.get("more_body"):
            await anyio.sleep_forever()


async def test_a_stream_keeps_only_its_last_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_stream, "MOST_BYTES", 4)
    kept = Kept()
    for body in (b"abcd", b"ef"):
        await kept.put(body)
    assert (kept.stream.size, await kept.stream.read(2)) == (6, b"cdef")
    with pytest.raises(RefusedError) as lost:
        await kept.stream.read(1)
    assert (lost.value.problem.code, lost.value.problem.param) == ("offset_lost", "from")


async def test_a_reader_gets_blocks_of_whole_events() -> None:
    """Also a reader that is far behind, so that it holds little memory if it is slow."""
    kept = Kept()
    event = b"data: " + b"x" * 1000 + b"\n\n"
    await kept.put(300 * event)
    kept.stream.end()
    await kept.read()
    assert b"".join(kept.bodies) == 300 * event
    assert max(map(len, kept.bodies)) < BLOCK + len(event)
    assert {len(body) % len(event) for body in kept.bodies} == {0}


async def test_a_reader_that_the_server_stops_gets_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_stream, "MOST_BYTES", 8)
    kept = Kept()
    await kept.put(b"abcdefgh")
    await read_until_stopped(kept, b"ijkl")
    assert b"".join(kept.bodies) == b"abcdefghijkl"


async def test_a_reader_that_the_server_stops_waits_for_the_end_of_the_work() -> None:
    kept = Kept()
    kept.caller.closing.set(Closing("the server stops", Cause.SHUTDOWN, RefusedError(DEADLINE_PASSED)))
    async with anyio.create_task_group() as tasks, anyio.create_task_group() as reading:
        reading.start_soon(kept.read)
        await kept.put(b"data: 1\n\n")
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(kept.end_when_stopped, b"data: 2\n\n")
        reading.cancel_scope.cancel()
    assert kept.bodies == [b"", b"data: 1\n\n", b"data: 2\n\n"]


async def test_a_reader_far_behind_that_the_server_stops_gets_a_failure() -> None:
    """The rest of each such reader would be up to 4 MiB of memory, for all at once."""
    kept = Kept()
    await kept.put(b"data: 1\n\n")
    await read_until_stopped(kept, 100 * (b"data: " + b"x" * 1000 + b"\n\n"))
    first, *last = kept.bodies[1:]
    assert (first, len(last)) == (b"data: 1\n\n", 1)
    assert b'"error"' in last[0]
    assert len(last[0]) < 1000


async def read_until_stopped(kept: Kept, unread: bytes) -> None:
    """Read a stream until the server stops, which has more bytes by then."""
    kept.stops_reading = True
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(kept.read)
        await anyio.wait_all_tasks_blocked()
        await kept.put(unread)
        kept.stream.end()
        kept.caller.closing.set(Closing("the server stops", Cause.SHUTDOWN, RefusedError(DEADLINE_PASSED)))
        tasks.cancel_scope.cancel()


async def test_a_reader_adds_no_comment() -> None:
    """The stream has its own, and a client counts the bytes."""
    kept = Kept()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(kept.read)
        await anyio.wait_all_tasks_blocked()
        for now in (0.0, 1e9):
            kept.caller.silences._look(now)
        await anyio.wait_all_tasks_blocked()
        assert kept.bodies == []
        kept.stream.end()
