"""A virtual clock, keys and records for tests of limits and usage."""

from dataclasses import dataclass
from typing import Any

from gateway.keys.key import Key, KeyLimits
from gateway.limits.moment import NANOSECONDS, Moment
from gateway.middleware.caller import Caller
from gateway.serving.records import Outcome, RequestRecord

JANUARY_2026 = 1_767_225_600.0
"""Start of the year 2026 in UTC."""


@dataclass
class VirtualClock:
    """A clock that only a test moves."""

    time: float = JANUARY_2026
    tick: int = 5 * NANOSECONDS

    def __call__(self) -> Moment:
        return Moment(self.tick, self.time)

    def advance(self, seconds: float) -> None:
        self.time += seconds
        self.tick += round(seconds * NANOSECONDS)

    def step(self, seconds: float) -> None:
        """Set the time, back if negative, as the system's clock may be. No time passes."""
        self.time += seconds


def key_with(key_id: str = "key_1", **limits: int) -> Key:
    return Key(id=key_id, name=key_id, limits=KeyLimits(**limits))


def record_of(key: Key | None, **fields: Any) -> RequestRecord:
    """Return a record of a request that finished, unless `fields` says otherwise."""
    known = {"model": "tiny", "operation": "chat", "outcome": Outcome.FINISHED, "phase": "done"}
    return RequestRecord(caller=Caller(request_id="req_1", key=key), **{**known, **fields})
