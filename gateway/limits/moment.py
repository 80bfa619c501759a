"""Moment on the two clocks that limits use."""

import time
from dataclasses import dataclass
from typing import Self

import anyio

NANOSECONDS = 10**9
"""Nanoseconds of a second."""


@dataclass(frozen=True, slots=True)
class Moment:
    """One moment on both clocks."""

    tick: int
    """Nanoseconds on the event loop's clock, which never goes back; for rates."""
    time: float
    """Seconds since 1970; for the budgets of days and months."""

    @classmethod
    def now(cls) -> Self:
        """Return this moment."""
        return cls(int(anyio.current_time() * NANOSECONDS), time.time())
