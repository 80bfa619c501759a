"""Token bucket: the use of a limit per minute, in exact integers."""

from dataclasses import dataclass

from gateway.limits.moment import NANOSECONDS

MINUTE = 60 * NANOSECONDS
"""Nanoseconds of a minute. A level counts in units of 1 / MINUTE, so that `limit` units drain in a nanosecond."""


@dataclass(frozen=True, slots=True)
class Taken:
    """Amount that one request took from a bucket."""

    amount: int
    """The amount."""
    at: int
    """Time of the taking, in nanoseconds."""


class Bucket:
    """Use of a limit per minute. It drains continuously, by the limit in each minute.

    A bucket that was idle for a minute allows the whole limit at once. The limit is an argument of each method, so that
    it may change at any time. Times are in nanoseconds and never go back.
    """

    def __init__(self) -> None:
        self._level = 0
        self._drained_at = 0

    def show(self, level: int, now: int) -> None:
        """Set the level, in units of 1 / `MINUTE`, to that of a bucket in another process."""
        self._level, self._drained_at = level, now

    def remaining(self, limit: int, now: int) -> int:
        """Return the amount that can be taken at once."""
        return max(0, (limit * MINUTE - self._drain(limit, now)) // MINUTE)

    def wait(self, amount: int, limit: int, now: int) -> int:
        """Return the time until `amount` can be taken, in nanoseconds; 0 if it can be taken now."""
        excess = self._drain(limit, now) + amount * MINUTE - limit * MINUTE
        return max(0, -(-excess // limit))

    def reset(self, limit: int, now: int) -> int:
        """Return the time until the whole limit remains, in nanoseconds."""
        return -(-self._drain(limit, now) // limit)

    def take(self, amount: int, limit: int, now: int) -> Taken:
        """Take an amount, which may exceed what remains."""
        self._level = self._drain(limit, now) + amount * MINUTE
        return Taken(amount, now)

    def amend(self, taken: Taken, amount: int, limit: int, now: int) -> Taken:
        """Replace an amount that was taken earlier.

        Of a smaller amount, the difference is given back less all that has drained since the taking: this part may have
        been the request's own, and was given to others already.
        """
        undrained = max(0, taken.amount * MINUTE - limit * (now - taken.at))
        self._level = max(0, self._drain(limit, now) - min((taken.amount - amount) * MINUTE, undrained))
        return Taken(amount, taken.at)

    def _drain(self, limit: int, now: int) -> int:
        self._level = max(0, self._level - limit * (now - self._drained_at))
        self._drained_at = now
        return self._level
