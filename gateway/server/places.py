"""Places of the server's connections."""

import math
from typing import Protocol

import anyio


class Idle(Protocol):
    """Interface of a connection without a request."""

    def close_idle(self) -> bool:
        """Close the connection, unless bytes of a request have arrived. Returns True if it is closed."""


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
        self._idle: dict[Idle, float] = {}  # since when, the longest idle first
        self._closing: set[Idle] = set()  # closed here, but still in their places
        self._changed = anyio.Event()

    async def take(self) -> None:
        """Wait for a place."""
        while self._taken >= self._limit:
            self._changed = anyio.Event()
            with anyio.CancelScope(deadline=self._make_room()):
                await self._changed.wait()
        self._taken += 1

    def leave(self, connection: Idle) -> None:
        """Give back the place of a connection."""
        self._idle.pop(connection, None)
        self._closing.discard(connection)
        self._taken -= 1
        self._changed.set()

    def set_idle(self, connection: Idle, idle: bool) -> None:
        """Mark a connection as idle or busy."""
        self._idle.pop(connection, None)
        if idle and connection not in self._closing:
            self._idle[connection] = anyio.current_time()
            self._changed.set()

    def _make_room(self) -> float:
        """Close the connection that has been idle for longest, if one may be. Returns the time of the next attempt."""
        if self._closing or not self._idle:
            return math.inf
        for connection, since in list(self._idle.items()):
            if since + self._idle_grace > anyio.current_time():
                return since + self._idle_grace
            del self._idle[connection]
            if connection.close_idle():
                self._closing.add(connection)
                return math.inf
            self._idle[connection] = anyio.current_time()
        return anyio.current_time() + self._idle_grace
