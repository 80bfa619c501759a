"""Requests that wait until a replica has a place for them."""

import asyncio
from collections.abc import Awaitable

import anyio

from engine.errors import Busy

PASSING = 0.1
"""Seconds after which a request counts as waiting. To hand it to a replica with a free place takes less."""


class WaitingRoom:
    """Limits the requests to one model that wait, in number and in time. Runs on asyncio, as Ray does."""

    def __init__(self, places: int, timeout: float) -> None:
        """Create an empty room.

        Args:
            places: requests that may wait.
            timeout: seconds that each may wait.
        """
        self.waiting = 0
        """Requests that wait now."""
        self._places = places
        self._timeout = timeout

    async def wait(self, accepted: Awaitable[str]) -> str:
        """Wait until a replica has accepted a request, and return its id.

        Raises:
            Busy: too many requests wait, or this one has waited too long.
        """
        counted = refused = False
        with anyio.CancelScope(deadline=anyio.current_time() + self._timeout) as scope:

            def count() -> None:
                nonlocal counted, refused
                counted, refused = self.waiting < self._places, self.waiting >= self._places
                if refused:
                    scope.cancel()
                else:
                    self.waiting += 1

            timer = asyncio.get_running_loop().call_later(PASSING, count)
            try:
                return await accepted
            finally:
                timer.cancel()
                self.waiting -= counted
        if refused:
            raise Busy("Too many requests wait for this model.", code="queue_full")
        raise Busy(f"The request has waited for {self._timeout:g} seconds.", code="queue_timeout")
