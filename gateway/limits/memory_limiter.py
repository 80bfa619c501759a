"""Limits of all keys, counted in this process alone."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from typing_extensions import override

from gateway.keys.key import KeyLimits
from gateway.limits.ledger import Hold, KeyLedger
from gateway.limits.limiter import NO_LIMITS, Charged, Limiter, Reservation, charge_of, charged_in
from gateway.limits.moment import Moment
from gateway.serving.records import RequestRecord

NO_KEY = ""
"""Key id of requests without a key."""


@dataclass(slots=True)
class _Held(Reservation):
    """Tokens that an open request holds of a ledger in this process."""

    limits: KeyLimits
    """Limits of the key at the time of the admission."""
    ledger: KeyLedger
    """Ledger of the key."""
    hold: Hold
    """The tokens that it holds."""
    clock: Callable[[], Moment]
    """Returns the present."""

    @override
    def correct(self, bound: int) -> None:
        self.ledger.correct(self.hold, self.limits, bound, self.clock())


class MemoryLimiter(Limiter):
    """Limits that are counted in this process. Admission does not wait."""

    def __init__(self, clock: Callable[[], Moment] = Moment.now) -> None:
        """Create a limiter that has admitted nothing."""
        self._clock = clock
        self._ledgers: dict[str, KeyLedger] = {}

    @property
    @override
    def clock(self) -> Callable[[], Moment]:
        return self._clock

    @asynccontextmanager
    @override
    async def admitted(self, record: RequestRecord, bound: int) -> AsyncIterator[Reservation]:
        key = record.caller.key
        limits, ledger = (NO_LIMITS, self.ledger(NO_KEY)) if key is None else (key.limits, self.ledger(key.id))
        reservation = _Held(limits, ledger, ledger.admit(limits, bound, self.clock()), self.clock)
        try:
            yield reservation
        finally:
            ledger.settle(reservation.hold, limits, charge_of(record), self.clock())

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
