"""Ledger of one key: what its requests hold and have used, against its limits."""

from dataclasses import dataclass

from gateway.keys.key import KeyLimits
from gateway.limits.bucket import Bucket, Taken
from gateway.limits.budget import Budget, day, month
from gateway.limits.moment import Moment
from gateway.limits.refusals import budget_exceeded, concurrency_exceeded, rate_exceeded


@dataclass(slots=True)
class Hold:
    """Tokens that one open request holds."""

    taken: Taken | None
    """Tokens that it took from the rate; unset without this limit."""
    day: int
    """Tokens reserved of the day's budget."""
    month: int
    """Tokens reserved of the month's budget."""


class KeyLedger:
    """Use of one key. It refuses a request before it counts anything of it.

    No limit reserves more than its own value for one request, so that a request without `max_tokens` can be admitted.
    """

    def __init__(self) -> None:
        self.requests = Bucket()
        """Requests of the last minute."""
        self.tokens = Bucket()
        """Tokens of the last minute."""
        self.day = Budget(day)
        """Tokens of the day."""
        self.month = Budget(month)
        """Tokens of the month."""
        self.running = 0
        """Number of open requests."""

    def admit(self, limits: KeyLimits, bound: int, now: Moment) -> Hold:
        """Count a request, and reserve tokens for it.

        Args:
            limits: limits of the key.
            bound: tokens that the request may need at most.
            now: the present.

        Raises:
            RefusedError: a limit is reached (429).
        """
        _check_budget("tokens_per_day", self.day, limits.tokens_per_day, bound, now)
        _check_budget("tokens_per_month", self.month, limits.tokens_per_month, bound, now)
        if limits.concurrent_requests is not None and self.running >= limits.concurrent_requests:
            raise concurrency_exceeded(limits.concurrent_requests)
        _check_rate("requests_per_minute", self.requests, limits.requests_per_minute, 1, now)
        _check_rate("tokens_per_minute", self.tokens, limits.tokens_per_minute, bound, now)
        self.running += 1
        if limits.requests_per_minute is not None:
            self.requests.take(1, limits.requests_per_minute, now.tick)
        hold = Hold(None, 0, 0)
        if (rate := limits.tokens_per_minute) is not None:
            hold.taken = self.tokens.take(min(bound, rate), rate, now.tick)
        self._reserve(hold, limits, bound)
        return hold

    def correct(self, hold: Hold, limits: KeyLimits, bound: int, now: Moment) -> None:
        """Replace the bound of an open request by a better one. It is not refused any more."""
        if hold.taken is not None and (rate := limits.tokens_per_minute) is not None:
            hold.taken = self.tokens.amend(hold.taken, min(bound, rate), rate, now.tick)
        self._reserve(hold, limits, bound)

    def settle(self, hold: Hold, limits: KeyLimits, charge: int, now: Moment) -> None:
        """End a request: charge its tokens, and give back what it holds."""
        self.running -= 1
        if hold.taken is not None and (rate := limits.tokens_per_minute) is not None:
            self.tokens.amend(hold.taken, charge, rate, now.tick)
        self.day.reserve(-hold.day)
        self.month.reserve(-hold.month)
        self.day.charge(charge, now.time)
        self.month.charge(charge, now.time)

    def _reserve(self, hold: Hold, limits: KeyLimits, bound: int) -> None:
        day_tokens, month_tokens = _capped(bound, limits.tokens_per_day), _capped(bound, limits.tokens_per_month)
        self.day.reserve(day_tokens - hold.day)
        self.month.reserve(month_tokens - hold.month)
        hold.day, hold.month = day_tokens, month_tokens


def _check_budget(name: str, budget: Budget, limit: int | None, bound: int, now: Moment) -> None:
    if limit is None:
        return
    remaining = budget.remaining(limit, now.time)
    if remaining < max(1, min(bound, limit)):
        raise budget_exceeded(name, limit, remaining, bound, budget.reset(now.time))


def _check_rate(name: str, bucket: Bucket, limit: int | None, amount: int, now: Moment) -> None:
    if limit is None:
        return
    if wait := bucket.wait(min(amount, limit), limit, now.tick):
        raise rate_exceeded(name, limit, wait)


def _capped(bound: int, limit: int | None) -> int:
    return bound if limit is None else min(bound, limit)
