"""Requests and queries that the intake works on, in turns among clients."""

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from engine.errors import Busy
from engine.fairness.client_turns import ClientTurns
from engine.worker.slices import Effort, Slices


class Kind(Enum):
    """Kind of an arrival. Each has its own numbers."""

    REQUEST = "requests"
    QUERY = "queries"


ArrivalId: TypeAlias = tuple[Kind, int]
"""Kind and number of an arrival: the key of a request, or the id of a query."""


@dataclass(frozen=True, slots=True, eq=False)
class Arrival:
    """A request or a query that has no reply yet."""

    id: ArrivalId
    """Its id."""
    client: str
    """Client that takes turns with others."""
    slices: Slices[None]
    """Its work, which ends with the reply."""


class Backlog:
    """Arrivals without a reply that were not cancelled. Thread-safe.

    An arrival waits for the thread of the effort of its next piece. It waits for one piece of each other client, and
    for those of its own client.
    """

    def __init__(self, most: int) -> None:
        """Create an empty backlog. A client may have up to `most` arrivals of each kind."""
        self._most = most
        self._arrivals: dict[ArrivalId, tuple[Arrival, Effort]] = {}
        self._sizes: Counter[tuple[Kind, str]] = Counter()
        self._turns = {effort: ClientTurns[Arrival]() for effort in Effort}
        self._lock = threading.Lock()
        self._ready = {effort: threading.Condition(self._lock) for effort in Effort}
        self._closed = False

    def __len__(self) -> int:
        """Return the number of arrivals without a reply."""
        return len(self._arrivals)

    def add(self, arrival: Arrival) -> None:
        """Add an arrival. Its first piece is light.

        Raises:
            Busy: Its client has too many.
        """
        kind, _ = arrival.id
        with self._lock:
            if self._sizes[kind, arrival.client] >= self._most:
                message = f"{self._most} {kind.value} of this client are being processed already; try again later"
                raise Busy(message, code="queue_full")
            self._sizes[kind, arrival.client] += 1
            self._wait(arrival, Effort.LIGHT)

    def take(self, effort: Effort) -> Arrival | None:
        """Wait for an arrival with a piece of this effort, and return it; unset after `close`."""
        turns = self._turns[effort]
        with self._lock:
            while not (turns or self._closed):
                self._ready[effort].wait()
            return None if self._closed else turns.take()

    def put_back(self, arrival: Arrival, effort: Effort) -> None:
        """Let an arrival wait for its next piece, unless it was cancelled meanwhile."""
        with self._lock:
            if arrival.id in self._arrivals:
                self._wait(arrival, effort)

    def remove(self, arrival: ArrivalId, then: Callable[[], None] = lambda: None) -> bool:
        """Remove an arrival that is answered or cancelled. Returns False if it was removed before.

        Args:
            arrival: Its id.
            then: Called under the lock before the removal, so that a cancel comes either before or after both. If it
                raises, the arrival is not removed.
        """
        with self._lock:
            if arrival not in self._arrivals:
                return False
            then()
            removed, effort = self._arrivals.pop(arrival)
            self._turns[effort].discard(removed.client, removed)
            self._shrink(arrival[0], removed.client)
        return True

    def close(self) -> None:
        """Remove everything. From now on `take` returns None."""
        with self._lock:
            self._closed = True
            self._arrivals.clear()
            self._sizes.clear()
            for ready in self._ready.values():
                ready.notify_all()

    def _wait(self, arrival: Arrival, effort: Effort) -> None:
        self._arrivals[arrival.id] = arrival, effort
        self._turns[effort].add(arrival.client, arrival)
        self._ready[effort].notify()

    def _shrink(self, kind: Kind, client: str) -> None:
        self._sizes[kind, client] -= 1
        if not self._sizes[kind, client]:
            del self._sizes[kind, client]
