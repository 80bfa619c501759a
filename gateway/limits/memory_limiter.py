"""Limits of all keys, counted in this process alone."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from typing_extensions import override

from gateway.limits.ledger import KeyLedger
from gateway.limits.limiter import NO_LIMITS, Charged, Correct, Limiter, charge_of, charged_in
from gateway.limits.moment import Moment
from gateway.serving.records import RequestRecord

NO_KEY = ""
"""Key id of requests without a key."""


class MemoryLimiter(Limiter):
    """Limits that are counted in this process. Admission does not wait."""

    def __init__(self, clock: Callable[[], Moment] = Moment.now) -> None:
        """Create a limiter that has admitted nothing."""
        self.clock = clock
        self._ledgers: dict[str, KeyLedger] = {}

    @asynccontextmanager
    @override
    async def admitted(self, record: RequestRecord, bound: int) -> AsyncIterator[Correct]:
        key = record.caller.key
        limits, ledger = (NO_LIMITS, self.ledger(NO_KEY)) if key is None else (key.limits, self.ledger(key.id))
        hold = ledger.admit(limits, bound, self.clock())
        try:
            yield lambda better: ledger.correct(hold, limits, better, self.clock())
        finally:
            ledger.settle(hold, limits, charge_of(record), self.clock())

    @override
    def rates(self, key_id: str) -> KeyLedger:
        return self.ledger(key_id)

    @override
    async def restore(self, charged: Charged) -> None:
        time = self.clock().time
        of_day, of_month = await charged_in(charged, time)
        for key_id, tokens in of_month.items():
            self.ledger(key_id).month.charge(tokens, time)
            self.ledger(key_id).day.charge(of_day[key_id], time)

    @override
    async def settled(self) -> None:
        """Return at once: the charges are in memory."""

    @asynccontextmanager
    @override
    async def open(self) -> AsyncIterator[None]:
        yield

    def ledger(self, key_id: str) -> KeyLedger:
        """Return the ledger of a key."""
        return self._ledgers.setdefault(key_id, KeyLedger())
