"""Shares of a queue: no client can fill it so that others find no room."""

from collections import Counter

from engine.errors import Busy

_MOST_PER_ROOM = 8
"""Requests that a client may have in a queue for each one that there is room left for."""


class Shares:
    """Counts the waiting requests of each client.

    A client may queue a request while it has fewer than 8 times as many as there is room left. So a client alone gets
    8 of 9 places, and several greedy ones together always leave some for one more (dynamic thresholds of Choudhury and
    Hahne, 1998). The order of the queue is not affected.
    """

    def __init__(self, limit: int) -> None:
        """Start with an empty queue. `limit` is the maximum number of waiting requests."""
        self._limit = limit
        self._total = 0
        self._waiting: Counter[str] = Counter()

    def check_room(self, client: str, *, free: int = 0) -> None:
        """Check that a client may queue one more request. `free` requests will leave the queue at once.

        Raises:
            Busy: the queue is full, or its rest is kept for other clients.
        """
        room = self._limit + free - self._total
        if room <= 0:
            raise Busy(f"the queue is full (limit: {self._limit}); try again later", code="queue_full")
        own = self._waiting[client]
        if own >= _MOST_PER_ROOM * room:
            raise Busy(f"{own} requests of this client are waiting already; try again later", code="queue_full")

    def enter(self, client: str) -> None:
        """Count a request that waits."""
        self._total += 1
        self._waiting[client] += 1

    def leave(self, client: str) -> None:
        """Count a request that waits no longer."""
        self._total -= 1
        self._waiting[client] -= 1
        if not self._waiting[client]:
            del self._waiting[client]
