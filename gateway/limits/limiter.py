"""Admission of requests within the limits of their keys, and the charge for what they computed."""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

from gateway.keys.key import KeyLimits
from gateway.limits.budget import day, month
from gateway.limits.ledger import Hold, KeyLedger
from gateway.limits.moment import Moment
from gateway.serving.records import RequestRecord

Charged: TypeAlias = Callable[[float, float], Awaitable[Mapping[str, int]]]
"""Returns the charged tokens of each key id from one time to another, in seconds since 1970."""

NO_KEY, NO_LIMITS = "", KeyLimits()
"""Key id and limits of a request without a key."""


def charge_of(record: RequestRecord) -> int:
    """Return the tokens that were computed for the client: not the reused ones, and none after its cancel."""
    return record.prompt_tokens - record.cached_tokens + record.completion_tokens


@dataclass(slots=True)
class Reservation:
    """Tokens that an open request holds of its key's limits."""

    limits: KeyLimits
    """Limits of the key at the time of the admission."""
    ledger: KeyLedger
    """Ledger of the key."""
    hold: Hold
    """The tokens that it holds."""
    clock: Callable[[], Moment]
    """Returns the present."""

    def correct(self, bound: int) -> None:
        """Replace the estimate by the bound that the engine's count of the prompt gives."""
        self.ledger.correct(self.hold, self.limits, bound, self.clock())


@dataclass(slots=True)
class Limiter:
    """Limits of all keys. A caller without a key has none.

    The limits are those of the caller's `Key`, so that changed ones apply to its next request.
    """

    clock: Callable[[], Moment] = Moment.now
    """Returns the present."""
    _ledgers: dict[str, KeyLedger] = field(default_factory=dict, init=False)

    @contextmanager
    def admitted(self, record: RequestRecord, bound: int) -> Iterator[Reservation]:
        """Admit a request, and charge it on exit for what its record then says was computed.

        Args:
            record: record of the request; its counts must be complete on exit.
            bound: tokens that the request may need at most.

        Raises:
            RefusedError: a limit of the caller's key is reached (429).
        """
        key = record.caller.key
        limits, ledger = (NO_LIMITS, self.ledger(NO_KEY)) if key is None else (key.limits, self.ledger(key.id))
        reservation = Reservation(limits, ledger, ledger.admit(limits, bound, self.clock()), self.clock)
        try:
            yield reservation
        finally:
            ledger.settle(reservation.hold, limits, charge_of(record), self.clock())

    async def restore(self, charged: Charged) -> None:
        """Charge what the keys used in the current day and month, before the start. Asks for one day at a time."""
        time = self.clock().time
        start = month(time)[0]
        while start <= time:
            end = day(start)[1]
            for key_id, tokens in (await charged(start, end)).items():
                self.ledger(key_id).month.charge(tokens, time)
                if time < end:
                    self.ledger(key_id).day.charge(tokens, time)
            start = end

    def ledger(self, key_id: str) -> KeyLedger:
        """Return the ledger of a key."""
        return self._ledgers.setdefault(key_id, KeyLedger())
