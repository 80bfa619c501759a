"""Silences of streams, which one task measures for all: a timer for each event would cost as much as its encoding."""

import math
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import anyio

TICK = 0.25
"""Seconds between two looks. A silence is noticed so much later at most."""


class Silence:
    """Wait for the next events of one stream, which ends after a time without any."""

    def __init__(self, seconds: float) -> None:
        """Create a silence that begins now and lasts for so many seconds."""
        self.over = False
        """True once it has lasted so long. The wait is cancelled then."""
        self.scope = anyio.CancelScope()
        """Scope of the wait."""
        self.ends_at = math.inf
        """Time by the event loop's clock at which it is over; infinite while the stream is heard."""
        self._seconds = seconds
        self.begin()

    def begin(self) -> None:
        """Begin again, after the stream has sent something."""
        self.ends_at = anyio.current_time() + self._seconds

    def interrupt(self) -> None:
        """Let the stream send for as long as it takes."""
        self.ends_at = math.inf

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
            self._end_all(anyio.current_time())

    def _end_all(self, now: float) -> None:
        for silence in self._known:
            if silence.ends_at <= now:
                silence.end()
