"""Places of the server's connections."""

import math
from collections import OrderedDict
from typing import Protocol

import anyio

from engine.notifier import Notifier


class Idle(Protocol):
    """Interface of a connection without a request."""

    def close_idle(self) -> bool:
        """Close the connection, unless bytes wait to be read. Returns True if it is closed."""


class Places:
    """Limited number of places for connections.

    A new connection takes the place of the one that has been idle for longest. A connection with a request keeps its
    place until the response is complete. So idle connections cannot keep new clients out.
    """

    def __init__(self, limit: int, idle_grace: float) -> None:
        """Create the places.

        Args:
            limit: Number of places.
            idle_grace: Seconds for which an idle connection keeps its place.
        """
        self._limit = limit
        self._idle_grace = idle_grace
        self._taken = 0
        self._idle: OrderedDict[Idle, float] = OrderedDict()  # since when, the longest idle first
        self._closed: set[Idle] = set()  # closed here; their places are given away
        self._changed = Notifier()  # for one task of each listening socket

    async def take(self) -> None:
        """Wait for a place."""
        while self._taken >= self._limit and not self._close_idle():
            with anyio.CancelScope(deadline=self._next_attempt()):
                await self._changed.wait()
        self._taken += 1

    def leave(self, connection: Idle) -> None:
        """Give back the place of a connection that has ended."""
        self._idle.pop(connection, None)
        if connection in self._closed:
            self._closed.remove(connection)
        else:
            self._taken -= 1
            self._changed.notify()

    def set_idle(self, connection: Idle, idle: bool) -> None:
        """Mark a connection as idle or busy."""
        self._idle.pop(connection, None)
        if idle and connection not in self._closed:
            self._idle[connection] = anyio.current_time()
            self._changed.notify()

    def _close_idle(self) -> bool:
        """Close the connection that has been idle for longest, if one may be closed. Returns True if it was."""
        now = anyio.current_time()
        for _ in range(len(self._idle)):
            connection, since = next(iter(self._idle.items()))
            if since + self._idle_grace > now:
                break
            del self._idle[connection]
            if connection.close_idle():
                self._closed.add(connection)
                self._taken -= 1
                return True
            self._idle[connection] = now
        return False

    def _next_attempt(self) -> float:
        return next(iter(self._idle.values()), math.inf) + self._idle_grace
