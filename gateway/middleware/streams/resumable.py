"""Streams that go on without their clients, and that clients read again: only where a client asks for it.

The protocol is llama-server's. A request with the header `X-Conversation-Id` has its stream kept under this name, with
the bytes as they are sent. The stream goes on when its client leaves, and `/v1/stream` reads or ends it.
"""

import math
from collections.abc import AsyncIterator, Iterable
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from time import time
from typing import TYPE_CHECKING

import anyio
from starlette.types import Message, Scope

from engine.errors import Unavailable
from gateway.middleware.caller import Caller, Cause, Closing, caller_of, with_caller
from gateway.middleware.conventions import Conventions
from gateway.middleware.errors import NO_RETRY, RATE_LIMIT, SERVER, Problem, RefusedError, retry_after
from gateway.middleware.streams.sse import EventStream, Framing, NextEvents

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

HEADER = "x-conversation-id"
MAX_NAME = 1024
"""Characters of a name."""
KEPT_SECONDS = 300.0
"""Time that a stream stays after its end."""
MOST_BYTES = 4 * 2**20
"""Bytes of one stream; older ones are dropped."""

_LOST = "Stream offset lost, please restart"
_ENDED = Problem(
    status=HTTPStatus.INTERNAL_SERVER_ERROR,
    message="The client ended the stream, or began another one with its name.",
    type=SERVER,
    code="cancelled",
    headers=NO_RETRY,  # a retry would end the other stream
)
"""Failure for those who still read a stream that is ended early."""


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """Limits of the streams that are kept."""

    timeout: float
    """Maximum time of a stream, in seconds."""
    most: int
    """Maximum number of streams, also of those that have ended. 0 keeps none."""
    running: int
    """Maximum number of running streams of one owner. They hold no connection."""


@dataclass(slots=True, eq=False)
class KeptStream:
    """The bytes of one stream."""

    owner: str
    """Owner, as `Caller.credentials`."""
    name: str
    """Name among those of the owner."""
    closing: Closing
    """Receives the reason if the stream is ended early."""
    framing: Framing
    """Format of the stream."""
    conventions: Conventions
    """Conventions of its API, for failures of a reader alone."""
    started_at: int = field(default_factory=lambda: int(time()))
    """Time of the beginning, in seconds since 1970."""
    ended_at: int = 0
    """Time of the end; 0 while the stream runs."""
    dropped: int = 0
    """Number of first bytes that were dropped."""
    failure: Exception | None = None
    """Failure before the first byte, which can still become a status."""
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    """Cancels the work."""
    _bytes: bytearray = field(default_factory=bytearray)
    _news: anyio.Event = field(default_factory=anyio.Event)

    @property
    def size(self) -> int:
        """Number of bytes so far, with those that were dropped."""
        return self.dropped + len(self._bytes)

    async def send(self, message: Message) -> None:
        """Add the body of an ASGI message."""
        if message["type"] == "http.response.body":
            self._bytes += message.get("body", b"")
            if (surplus := len(self._bytes) - MOST_BYTES) > 0:
                del self._bytes[:surplus]
                self.dropped += surplus
            self._notify()

    def check(self, start: int) -> None:
        """Check that the bytes from a position on are still there.

        Raises:
            RefusedError: They were dropped (400).
        """
        if start < self.dropped:
            raise RefusedError(Problem(status=HTTPStatus.BAD_REQUEST, message=_LOST, code="offset_lost", param="from"))

    def end(self) -> None:
        """Mark the end. Readers get what is left."""
        self.ended_at = int(time())
        self._notify()

    def stop(self, closing: Closing) -> None:
        """End the work early, for a reason, or if it has ended, the time for which its bytes are kept."""
        if not self.ended_at:
            self.closing.set(closing)
        self.scope.cancel()

    async def read(self, start: int) -> bytes:
        """Wait for bytes from a position on, and return all. Empty at the end.

        Raises:
            RefusedError: They were dropped.
        """
        while start >= self.size and not self.ended_at:
            await self._news.wait()
        self.check(start)
        return bytes(self._bytes[start - self.dropped :])

    def reader(self, caller: Caller, start: int = 0) -> EventStream:
        """Return a response with the bytes from a position on, as they come, for a caller that reads to the end.

        It adds nothing, so that a client can count them. The kept stream has comments that keep a connection open, and
        its own deadline.
        """
        caller.closing.lift_deadline()
        position = start

        async def take() -> Iterable[bytes]:
            nonlocal position
            data = await self.read(position)
            if not data and self.failure is not None:
                raise self.failure
            position += len(data)
            return (data,) if data else ()

        @asynccontextmanager
        async def source() -> AsyncIterator[NextEvents]:
            try:
                yield take
            except anyio.get_cancelled_exc_class():
                if caller.closing.error is not None:  # the server stops, and a client that still listens gets the end
                    await self._stopped(caller.closing)
                raise

        def last_events(problem: Problem) -> bytes:
            """Return the end of the kept stream, or the failure of this reader alone."""
            if self.dropped <= position < self.size:
                return bytes(self._bytes[position - self.dropped :])
            return self.framing.failure % self.conventions.encode_error(self.conventions.adapt(problem))

        return EventStream(source, end=b"", keep_alive=math.inf, encode_failure=last_events, framing=self.framing)

    async def _stopped(self, closing: Closing) -> None:
        """End the work early, and wait for its end. Is not interrupted."""
        self.stop(closing)
        with anyio.CancelScope(shield=True):
            while not self.ended_at:
                await self._news.wait()

    def _notify(self) -> None:
        self._news.set()
        self._news = anyio.Event()


class ResumableStreams:
    """Runs the streams that outlive their clients, inside the server's scope."""

    def __init__(self, limits: StreamLimits) -> None:
        self._limits = limits
        self._tasks: TaskGroup | None = None
        self._streams: dict[tuple[str, str], KeptStream] = {}

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Accept streams inside the context. Leaving it cancels all, and waits until the engine releases them."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            try:
                yield
            finally:
                self._tasks = None
                for stream in self._streams.values():
                    stream.stop(Closing("the server is shutting down", Cause.SHUTDOWN))
                tasks.cancel_scope.cancel()

    def caller_of(self, caller: Caller, name: str) -> Caller:
        """Return the caller of a stream to keep, with its own deadline, and its own reason for an early end.

        What it holds is released with the request, until `keep`.

        Raises:
            RefusedError: The name is too long (400).
        """
        if len(name) > MAX_NAME:
            message = f"{HEADER}: should have at most {MAX_NAME} characters"
            raise RefusedError(Problem(status=HTTPStatus.BAD_REQUEST, message=message, code="invalid_value"))
        closing = Closing(deadline=anyio.current_time() + self._limits.timeout)
        kept = replace(caller, held=ExitStack(), closing=closing)
        caller.held.push(kept.held)
        return kept

    @property
    def enabled(self) -> bool:
        """True if streams are kept."""
        return self._limits.most > 0

    def keep(self, caller: Caller, name: str, response: EventStream, scope: Scope) -> EventStream:
        """Run a stream, in place of the owner's one with the same name, and return a response that reads it.

        Args:
            caller: Caller from `caller_of`.
            name: Name of the stream.
            response: The stream.
            scope: Scope of its request.

        Raises:
            RefusedError: Too many streams run (429).
            Unavailable: The server is stopping.
        """
        if self._tasks is None:
            raise Unavailable("The server is shutting down.", code="shutting_down")
        self._check_running(caller.credentials, name)
        self.drop(caller.credentials, name)
        self._make_room()
        stream = KeptStream(caller.credentials, name, caller.closing, response.framing, caller.conventions)
        self._streams[stream.owner, name] = stream
        own = replace(caller, held=caller.held.pop_all(), direct=None)
        self._tasks.start_soon(self._run, stream, own, response, scope)
        return stream.reader(caller_of(scope))

    def find(self, owner: str, name: str) -> KeptStream | None:
        """Return an owner's stream, or None."""
        return self._streams.get((owner, name))

    def named(self, owner: str, name: str) -> Iterable[KeptStream]:
        """Return an owner's streams with a name, and with `name::…`."""
        return [one for one in self._of(owner) if one.name == name or one.name.startswith(f"{name}::")]

    def drop(self, owner: str, name: str) -> None:
        """End an owner's stream, if there is one, and forget its bytes."""
        stream = self._streams.pop((owner, name), None)
        if stream is not None:
            stream.stop(Closing("the client ended the stream", Cause.CLIENT_CANCELLED, RefusedError(_ENDED)))

    def _check_running(self, owner: str, name: str) -> None:
        running = [one for one in self._of(owner) if not one.ended_at and one.name != name]
        if len(running) >= self._limits.running:
            raise _limit_reached(f"At most {self._limits.running} resumable streams of one client may run.")

    def _make_room(self) -> None:
        """Forget the oldest stream that has ended, if there is no room for another one. A running one stays."""
        if len(self._streams) < self._limits.most:
            return
        ended = [one for one in self._streams.values() if one.ended_at]
        if not ended:
            raise _limit_reached(f"At most {self._limits.most} resumable streams may run.")
        oldest = min(ended, key=lambda one: one.ended_at)
        self.drop(oldest.owner, oldest.name)

    def _of(self, owner: str) -> list[KeptStream]:
        return [one for one in self._streams.values() if one.owner == owner]

    async def _run(self, stream: KeptStream, caller: Caller, response: EventStream, scope: Scope) -> None:
        with stream.scope:
            await self._produce(stream, caller, response, scope)
            await anyio.sleep(KEPT_SECONDS)
        if self._streams.get((stream.owner, stream.name)) is stream:
            del self._streams[stream.owner, stream.name]

    async def _produce(self, stream: KeptStream, caller: Caller, response: EventStream, scope: Scope) -> None:
        try:
            with caller.held, anyio.CancelScope(deadline=caller.closing.deadline) as caller.closing.work:
                await response(with_caller(scope, caller), _no_message, stream.send)
        except Exception as error:  # noqa: BLE001 - the reader raises it
            stream.failure = error
        finally:
            if not stream.size and stream.failure is None:
                stream.failure = caller.closed().error
            stream.end()


def _limit_reached(message: str) -> RefusedError:
    problem = Problem(
        status=HTTPStatus.TOO_MANY_REQUESTS,
        message=message,
        type=RATE_LIMIT,
        code="stream_limit_reached",
        headers=retry_after(1),
    )
    return RefusedError(problem)


async def _no_message() -> Message:
    await anyio.sleep_forever()
    raise AssertionError
