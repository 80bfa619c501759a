"""Requests that wait until a replica has a place for them."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import anyio

from engine.errors import Busy

PASSING = 0.1
"""Seconds after which a request counts as waiting. To hand it to a replica takes less, unless the machine is busy."""


class WaitingRoom:
    """Limits the requests to one model that wait, in number and in time. Runs on asyncio, as Ray does.

    It does not limit those that a replica has accepted: in a burst, Ray sends some before it counts the ones before,
    and these take places that are reserved. So more requests may be inside than the places and those that may wait.
    """

    def __init__(self, most: int, timeout: float, places: Callable[[], int]) -> None:
        """Create an empty room.

        Args:
            most: requests that may wait.
            timeout: seconds that each may wait.
            places: returns the number of requests that the replicas can have together.
        """
        self.waiting = 0
        """Requests that wait now."""
        self._most = most
        self._timeout = timeout
        self._places = places
        self._inside = 0
        self._refused = 0  # of those inside

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Count a request, which waits or runs inside the context."""
        self._inside += 1
        try:
            yield
        finally:
            self._inside -= 1

    async def wait(self, accepted: Awaitable[str]) -> str:
        """Wait until a replica has accepted a request, and return its id.

        Raises:
            Busy: too many requests wait, or this one has waited too long.
        """
        counted = refused = False
        with anyio.CancelScope(deadline=anyio.current_time() + self._timeout) as scope:

            def count() -> None:
                nonlocal counted, refused
                refused = self._full
                counted = not refused
                self.waiting += counted
                self._refused += refused
                if refused:
                    scope.cancel()

            timer = asyncio.get_running_loop().call_later(PASSING, count)
            try:
                return await accepted
            finally:
                timer.cancel()
                self.waiting -= counted
                self._refused -= refused
        if refused:
            raise Busy("Too many requests wait for this model.", code="queue_full")
        raise Busy(f"The request has waited for {self._timeout:g} seconds.", code="queue_timeout")

    @property
    def _full(self) -> bool:
        """True if no further request may wait. Where replicas have places left, it is only being handed over."""
        return self.waiting >= self._most and self._inside - self._refused > self._places() + self._most
