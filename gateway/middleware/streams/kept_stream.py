"""The bytes of one stream that goes on without its client, and their readers."""

import math
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from time import time

import anyio
from starlette.types import Message

from engine.notifier import Notifier
from gateway.middleware.caller import Caller, Closing
from gateway.middleware.conventions import Conventions
from gateway.middleware.errors import Problem, RefusedError
from gateway.middleware.streams.blocks import BLOCK
from gateway.middleware.streams.sse import EventStream, Framing, NextEvents

MOST_BYTES = 4 * 2**20
"""Bytes of one stream; older ones are dropped."""

_LOST = "Stream offset lost, please restart"


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
    _news: Notifier = field(default_factory=Notifier)

    @property
    def size(self) -> int:
        """Number of bytes so far, with those that were dropped."""
        return self.dropped + len(self._bytes)

    async def send(self, message: Message) -> None:
        """Add the body of an ASGI message, if it has one."""
        self._bytes += message.get("body", b"")
        if (surplus := len(self._bytes) - MOST_BYTES) > 0:
            del self._bytes[:surplus]
            self.dropped += surplus
        self._news.notify()

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
        self._news.notify()

    def stop(self, closing: Closing) -> None:
        """End the work early, for a reason, or if it has ended, the time for which its bytes are kept."""
        self.closing.set(closing)
        self.scope.cancel()

    async def read(self, start: int) -> bytes:
        """Wait for bytes from a position on, and return all, or a `BLOCK` and the rest of its last event.

        A slow reader holds several copies of what it gets at once. Empty at the end.

        Raises:
            RefusedError: They were dropped.
        """
        while start >= self.size and not self.ended_at:
            await self._news.wait()
        self.check(start)
        begin, mark = start - self.dropped, self.framing.event_end
        end = self._bytes.find(mark, begin + BLOCK)
        return bytes(self._bytes[begin : end + len(mark) if end >= 0 else None])

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
            """Return the end of the kept stream, or the failure of this reader alone, who may be far behind."""
            if self.dropped <= position and 0 < self.size - position <= BLOCK:
                return bytes(self._bytes[position - self.dropped :])
            return self.framing.failure % self.conventions.encode_error(self.conventions.adapt(problem))

        return EventStream(source, end=b"", keep_alive=math.inf, encode_failure=last_events, framing=self.framing)

    async def _stopped(self, closing: Closing) -> None:
        """End the work early, and wait for its end. Is not interrupted."""
        self.stop(closing)
        with anyio.CancelScope(shield=True):
            while not self.ended_at:
                await self._news.wait()
