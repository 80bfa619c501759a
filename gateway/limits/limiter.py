"""Admission of requests within the limits of their keys, and the charge for what they computed."""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeAlias

from gateway.keys.key import KeyLimits
from gateway.limits.bucket import Bucket
from gateway.limits.budget import day, month
from gateway.limits.moment import Moment
from gateway.serving.records import RequestRecord

Charged: TypeAlias = Callable[[float, float], Awaitable[Mapping[str, int]]]
"""Returns the charged tokens of each key id from one time to another, in seconds since 1970."""

Correct: TypeAlias = Callable[[int], None]
"""Replaces the bound of an open request by the one that the engine's count of the prompt gives."""

NO_LIMITS = KeyLimits()
"""Limits of a request without a key."""


def charge_of(record: RequestRecord) -> int:
    """Return the tokens that were computed for the client: not the reused ones, and none after its cancel."""
    return record.prompt_tokens - record.cached_tokens + record.completion_tokens


async def charged_in(charged: Charged, time: float) -> tuple[Counter[str], Counter[str]]:
    """Return the charged tokens of each key in the day and in the month of a time. Asks for one day at a time."""
    of_day, of_month = Counter[str](), Counter[str]()
    start = month(time)[0]
    while start <= time:
        end = day(start)[1]
        of_day = Counter(await charged(start, end))
        of_month.update(of_day)
        start = end
    return of_day, of_month


class Rates(Protocol):
    """Use of a key's limits per minute, for headers."""

    @property
    def requests(self) -> Bucket:
        """Requests of the last minute."""

    @property
    def tokens(self) -> Bucket:
        """Tokens of the last minute."""


class Limiter(Protocol):
    """Limits of all keys. A caller without a key has none.

    The limits are those of the caller's `Key`, so that changed ones apply to its next request.
    """

    clock: Callable[[], Moment]
    """Returns the present."""

    def admitted(self, record: RequestRecord, bound: int) -> AbstractAsyncContextManager[Correct]:
        """Admit a request, and charge it on exit for what its record then says was computed.

        Leaving the context does not wait.

        Args:
            record: record of the request; its counts must be complete on exit.
            bound: tokens that the request may need at most.

        Raises:
            RefusedError: a limit of the caller's key is reached (429), or it cannot be known (503).
        """

    def rates(self, key_id: str) -> Rates:
        """Return the use of a key, as far as this process knows it."""

    async def restore(self, charged: Charged) -> None:
        """Charge what the keys used in the current day and month, before the start."""

    async def settled(self) -> None:
        """Wait until the charges of the requests that have ended are stored, or cannot be for now."""

    def open(self) -> AbstractAsyncContextManager[None]:
        """Count requests inside the context. They must have ended before it is left."""
