"""Budget of tokens of a calendar period in UTC."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

Period: TypeAlias = Callable[[float], tuple[float, float]]
"""Returns the start and the end of the period around a time, all in seconds since 1970."""


def day(time: float) -> tuple[float, float]:
    """Return the start and the end of the day."""
    start = datetime.fromtimestamp(time, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return start.timestamp(), (start + timedelta(days=1)).timestamp()


def month(time: float) -> tuple[float, float]:
    """Return the start and the end of the month."""
    start = datetime.fromtimestamp(time, UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    later = start + timedelta(days=31)
    return start.timestamp(), later.replace(day=1).timestamp()


class Budget:
    """Tokens of the current period: charged, and reserved for open requests.

    A request is charged in the period in which it ends, which is also the period of its row in the usage store. A clock
    that is set back into the period before changes nothing. One that is set back further was wrong: the charges of the
    time that it showed are forgotten, because that period may not begin for years.
    """

    def __init__(self, period: Period) -> None:
        self._period = period
        self._charged = 0
        self._reserved = 0
        self._ends_at = 0.0

    def remaining(self, limit: int, time: float) -> int:
        """Return the tokens that are neither charged nor reserved."""
        return max(0, limit - self._charged_at(time) - self._reserved)

    def reset(self, time: float) -> float:
        """Return the time until the charges are forgotten, in seconds."""
        self._charged_at(time)
        return self._ends_at - time

    def reserve(self, tokens: int) -> None:
        """Reserve tokens for a request, or give them back if the number is negative."""
        self._reserved += tokens

    def charge(self, tokens: int, time: float) -> None:
        """Charge tokens to the current period."""
        self._charged = self._charged_at(time) + tokens

    def _charged_at(self, time: float) -> int:
        end = self._period(time)[1]
        if not end <= self._ends_at <= self._period(end)[1]:
            self._charged, self._ends_at = 0, end
        return self._charged
