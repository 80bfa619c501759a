"""Positions of the waiting requests in the queue."""

from collections.abc import Awaitable, Callable, Mapping

import anyio

from engine.protocol.messages import QueueOrder

FRESH = 1.0
"""Seconds for which an answer is used again."""
ASK_TIMEOUT = 1.0
"""Seconds to wait for an answer, since streams wait for it, too."""


class QueuePositions:
    """Positions by key. However many clients want to know them, the engine is asked at most once in `FRESH` seconds."""

    def __init__(self, ask: Callable[[], Awaitable[QueueOrder]]) -> None:
        """Use `ask` as the query for the order."""
        self._ask = ask
        self._positions: Mapping[int, int] = {}
        self._asked_at: float | None = None
        self._asking = anyio.Lock()

    async def latest(self) -> Mapping[int, int]:
        """Return the position of each waiting request by its key, from 1. Empty if the engine does not answer in time.

        Raises:
            Unavailable: The engine does not serve requests.
        """
        async with self._asking:
            if self._asked_at is None or anyio.current_time() - self._asked_at >= FRESH:
                self._positions = {}
                with anyio.move_on_after(ASK_TIMEOUT):
                    self._positions = {key: at for at, key in enumerate((await self._ask()).keys, start=1)}
                self._asked_at = anyio.current_time()
        return self._positions
