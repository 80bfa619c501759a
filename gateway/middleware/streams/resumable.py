"""Streams that go on without their clients, and that clients read again: only where a client asks for it.

The protocol is llama-server's. A request with the header `X-Conversation-Id` has its stream kept under this name, with
the bytes as they are sent. The stream goes on when its client leaves, and `/v1/stream` reads or ends it.
"""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import TYPE_CHECKING

import anyio
from starlette.types import Message, Scope

from engine.errors import shutting_down
from gateway.middleware.caller import SHUTDOWN, Caller, Cause, Closing, caller_of, with_caller
from gateway.middleware.errors import RATE_LIMIT, Problem, RefusedError, retry_after
from gateway.middleware.streams.kept_stream import KeptStream
from gateway.middleware.streams.sse import EventStream

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

HEADER = "x-conversation-id"
MAX_NAME = 1024
"""Characters of a name."""
KEPT_SECONDS = 300.0
"""Time that a stream stays after its end."""

_ENDED = Problem(
    status=HTTPStatus.BAD_REQUEST,  # which is not tried again: that would end the other stream
    message="The client ended the stream, or began another one with its name.",
    code="stream_ended",
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


class ResumableStreams:
    """Runs the streams that outlive their clients, inside the server's scope."""

    def __init__(self, limits: StreamLimits) -> None:
        self._limits = limits
        self._tasks: TaskGroup | None = None
        self._streams: dict[tuple[str, str], KeptStream] = {}

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Accept streams inside the context. Leaving it ends all, and waits until the engine releases them."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            try:
                yield
            finally:
                self._tasks = None
                for stream in self._streams.values():
                    stream.stop(Closing(SHUTDOWN, Cause.SHUTDOWN))

    def caller_of(self, caller: Caller, name: str) -> Caller:
        """Return the caller of a stream to keep, with its own deadline, and its own reason for an early end.

        What it holds is released with the request, until `keep`.

        Raises:
            RefusedError: The name is too long (400).
        """
        if len(name) > MAX_NAME:
            message = f"{HEADER}: should have at most {MAX_NAME} characters"
            raise RefusedError(Problem(status=HTTPStatus.BAD_REQUEST, message=message, code="invalid_value"))
        return replace(caller, closing=Closing(deadline=anyio.current_time() + self._limits.timeout))

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
            raise shutting_down()
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
    raise AssertionError("a stream sends only")
