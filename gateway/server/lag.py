"""Lag of the event loop, and a clock that does not count it."""

import logging
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

logger = logging.getLogger(__name__)

TICK = 0.25
"""Seconds between two measurements. A lag is measured up to so much too short. Each wakes an idle program."""
NOTABLE = 0.25
"""Lag in seconds from which it is logged and reported."""
LOG_PAUSE = 10.0
"""Seconds between two lines of the log."""
REPORTED_FOR = 60.0
"""Seconds for which a lag is reported."""


class LoopClock:
    """Clock that stands still while the event loop is held up, by a long computation or by a stopped process.

    A client is never blamed for such a time: the loop could neither read its bytes nor write to it. The clock measures
    how late its own task is run.
    """

    def __init__(self) -> None:
        self._time = 0.0
        self._ticked_at = -math.inf
        self._worst = 0.0
        self._worst_at = -math.inf
        self._logged_at = -math.inf

    @property
    def lag(self) -> float:
        """Largest notable lag of the last minute in seconds; 0 without one."""
        return self._worst if anyio.current_time() - self._worst_at < REPORTED_FOR else 0.0

    def time(self) -> float:
        """Return the time in seconds, without stalls."""
        return self._time + min(anyio.current_time() - self._ticked_at, 2 * TICK)

    async def run(self) -> None:
        """Measure until cancelled."""
        self._time, self._ticked_at = self.time(), anyio.current_time()
        while True:
            await anyio.sleep(TICK)
            self._tick(anyio.current_time())

    def _tick(self, now: float) -> None:
        elapsed = now - self._ticked_at
        self._time += min(elapsed, 2 * TICK)
        self._ticked_at = now
        if elapsed - TICK >= NOTABLE:
            self._note(elapsed - TICK, now)

    def _note(self, lag: float, now: float) -> None:
        if lag >= self.lag:
            self._worst, self._worst_at = lag, now
        if now - self._logged_at >= LOG_PAUSE:
            self._logged_at = now
            logger.warning("the event loop was held up for %.2f s", lag)


@asynccontextmanager
async def running(clock: LoopClock) -> AsyncIterator[None]:
    """Run a clock inside the context."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(clock.run)
        yield
        tasks.cancel_scope.cancel()
