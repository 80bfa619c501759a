"""Fair turns among connections that upload."""

import anyio
import anyio.lowlevel


class Turns:
    """Turns in the order of asking, at most one in each pass of the event loop.

    All other tasks run between two turns. So uploads and large heads together delay them as much as one turn does,
    however many connections send them.
    """

    def __init__(self) -> None:
        self.granted = 0
        """Number of turns so far."""
        self._queue = anyio.Lock(fast_acquire=True)

    async def next(self) -> None:
        """Wait for a turn. It lasts until the caller waits again."""
        async with self._queue:
            await anyio.lowlevel.checkpoint()
        self.granted += 1
