"""Silences of streams, which one task measures for all: a timer for each event would cost as much as its encoding."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import anyio

TICK = 0.5
"""Seconds between two looks. A silence begins at the first look after the last event, and ends at a look."""


class Silence:
    """Wait for the next events of one stream, which ends after a time without any."""

    def __init__(self, seconds: float) -> None:
        """Create a silence that begins now and lasts for so many seconds."""
        self.over = False
        """True once it has lasted so long. The wait is cancelled then."""
        self.scope = anyio.CancelScope()
        """Scope of the wait."""
        self._seconds = seconds
        self._ends_at: float | None = None
        self._interrupted = False

    def begin(self) -> None:
        """Begin again, after the stream has sent something. Called for each event, so that it reads no clock."""
        self._ends_at = None
        self._interrupted = False

    def interrupt(self) -> None:
        """Let the stream send for as long as it takes."""
        self._interrupted = True

    def look(self, now: float) -> None:
        """End the wait if the silence has lasted for its time."""
        if self._interrupted:
            return
        if self._ends_at is None:
            self._ends_at = now + self._seconds
        elif self._ends_at <= now:
            self.end()

    def end(self) -> None:
        """Cancel the wait."""
        self.over = True
        self.scope.cancel()


class Silences:
    """Silences of all streams."""

    def __init__(self) -> None:
        self._known: set[Silence] = set()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """End silences in time inside the context. Outside of it none ends."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._run)
            yield
            tasks.cancel_scope.cancel()

    @contextmanager
    def watched(self, seconds: float) -> Iterator[Silence]:
        """Cancel the block after so many seconds of silence."""
        silence = Silence(seconds)
        self._known.add(silence)
        try:
            with silence.scope:
                yield silence
        finally:
            self._known.remove(silence)

    async def _run(self) -> None:
        while True:
            await anyio.sleep(TICK)
            self._look(anyio.current_time())

    def _look(self, now: float) -> None:
        for silence in self._known:
            silence.look(now)
