"""The queue of requests with sequences that wait for a slot."""

from collections import OrderedDict

from engine.core.group import SequenceGroup
from engine.core.sequence import Sequence
from engine.core.shares import Shares


class Queue:
    """Requests in the order first come, first served. Requests with running sequences come last, the fewest first.

    So a request with more choices than there are slots gets slots as they become free and never delays another request.
    The cost of an operation does not depend on the length of the queue.
    """

    def __init__(self, limit: int) -> None:
        """Create an empty queue.

        Args:
            limit: maximum number of requests without a running sequence, besides those that will take a free slot.
        """
        self._shares = Shares(limit)
        self._fresh: OrderedDict[int, SequenceGroup] = OrderedDict()
        self._partial: dict[int, SequenceGroup] = {}
        self._sequences = 0

    def __len__(self) -> int:
        """Return the number of waiting sequences."""
        return self._sequences

    @property
    def next_client(self) -> str | None:
        """The client of the next request without a running sequence; None if there is no such request."""
        return next((group.client for group in self._fresh.values()), None)

    def check_room(self, client: str, *, free: int) -> None:
        """Check that a client may queue one more request; `free` slots take as many requests out of the queue.

        Raises:
            Busy: the queue is full, or its rest is kept for other clients.
        """
        self._shares.check_room(client, free=free)

    def add(self, group: SequenceGroup) -> None:
        """Append a new request."""
        self._append(group)
        self._sequences += len(group.waiting)

    def put_back(self, group: SequenceGroup) -> None:
        """Put a request at the head after one of its sequences was preempted."""
        self._partial.pop(group.key, None)
        if group.key not in self._fresh:
            self._append(group)
        self._fresh.move_to_end(group.key, last=False)
        self._sequences += 1

    def give_way(self, group: SequenceGroup) -> None:
        """Let a request wait behind all others after one of several running sequences was preempted."""
        self._partial[group.key] = group
        self._sequences += 1

    def resume(self, group: SequenceGroup) -> None:
        """Append a request without a running sequence any more, so that later requests do not overtake it."""
        self._partial.pop(group.key, None)
        self._append(group)

    def discard(self, group: SequenceGroup) -> None:
        """Remove a request with all its waiting sequences."""
        if group.key in self._fresh:
            self._take(group)
        elif not self._partial.pop(group.key, None):
            return
        self._sequences -= len(group.waiting)

    def start_next(self) -> tuple[SequenceGroup, Sequence] | None:
        """Start the next sequence. Return it with its request, or None if the queue is empty."""
        if self._fresh:
            group = next(iter(self._fresh.values()))
            self._take(group)
        elif self._partial:
            group = min(self._partial.values(), key=lambda group: len(group.running))
        else:
            return None
        sequence = group.start()
        self._sequences -= 1
        if group.waiting:
            self._partial[group.key] = group
        else:
            self._partial.pop(group.key, None)
        return group, sequence

    def _append(self, group: SequenceGroup) -> None:
        self._fresh[group.key] = group
        self._shares.enter(group.client)

    def _take(self, group: SequenceGroup) -> None:
        del self._fresh[group.key]
        self._shares.leave(group.client)
