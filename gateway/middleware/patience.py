"""Limited patience with a client, by a clock that does not count the stalls of this program."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias, TypeVar

import anyio

Clock: TypeAlias = Callable[[], float]
"""Returns a time in seconds. It may stand still while this program could not serve its clients."""

STALLED = "client stopped reading"
"""Reason of a disconnect: the client took too long to read."""
_T = TypeVar("_T")


class PatienceError(Exception):
    """The client took too long. It is no `TimeoutError`, which the system raises for a peer that vanished."""


class Patience:
    """Time that remains for a client."""

    def __init__(self, seconds: float, clock: Clock) -> None:
        self._clock = clock
        self._until = clock() + seconds

    async def wait(self, wait: Callable[[], Awaitable[_T]]) -> _T:
        """Return what `wait` returns, if that comes in time. `wait` is cancelled and called again after a stall.

        Raises:
            PatienceError: No time remains.
        """
        while (left := self._until - self._clock()) > 0:
            with anyio.move_on_after(left):
                return await wait()
        raise PatienceError

    def extend(self, seconds: float) -> None:
        """Add time, for a delay that is not the client's."""
        self._until += seconds
