"""The queue of requests with sequences that wait for a slot."""

from collections import OrderedDict

from engine.core.group import SequenceGroup
from engine.core.sequence import Sequence
from engine.errors import Busy


def check_queue(waiting: int, limit: int) -> None:
    """Check that fewer requests wait than the limit.

    Raises:
        Busy: the limit is reached.
    """
    if waiting >= limit:
        raise Busy(f"{limit} requests are waiting already; try again later", code="queue_full")


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
        self._limit = limit
        self._fresh: OrderedDict[int, SequenceGroup] = OrderedDict()
        self._partial: dict[int, SequenceGroup] = {}
        self._sequences = 0

    def __len__(self) -> int:
        """Return the number of waiting sequences."""
        return self._sequences

    def check_room(self, free: int) -> None:
        """Check that one more request may wait; `free` slots take as many requests out of the queue.

        Raises:
            Busy: the queue is full.
        """
        check_queue(len(self._fresh) - free, self._limit)

    def add(self, group: SequenceGroup) -> None:
        """Append a new request."""
        self._fresh[group.key] = group
        self._sequences += len(group.waiting)

    def put_back(self, group: SequenceGroup) -> None:
        """Put a request at the head after one of its sequences was preempted."""
        self._partial.pop(group.key, None)
        self._fresh[group.key] = group
        self._fresh.move_to_end(group.key, last=False)
        self._sequences += 1

    def resume(self, group: SequenceGroup) -> None:
        """Append a request without a running sequence any more, so that later requests do not overtake it."""
        self._partial.pop(group.key, None)
        self._fresh[group.key] = group

    def discard(self, group: SequenceGroup) -> None:
        """Remove a request with all its waiting sequences."""
        if self._fresh.pop(group.key, None) or self._partial.pop(group.key, None):
            self._sequences -= len(group.waiting)

    def start_next(self) -> tuple[SequenceGroup, Sequence] | None:
        """Start the next sequence. Return it with its request, or None if the queue is empty."""
        if self._fresh:
            _, group = self._fresh.popitem(last=False)
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
