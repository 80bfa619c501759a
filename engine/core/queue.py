"""Requests with sequences that wait for a slot, and whose turn it is."""

from collections import OrderedDict

from engine.core.group import SequenceGroup
from engine.core.sequence import Sequence
from engine.errors import Busy


def check_queue(waiting: int, limit: int) -> None:
    """Raise `Busy` when as many requests wait as may."""
    if waiting >= limit:
        raise Busy(f"{limit} requests are waiting already; try again later", code="queue_full")


class Queue:
    """First come, first served, among requests of which nothing runs; then the request with the fewest running.

    So a request with more choices than there are slots is served as room comes and never holds up another one. What
    an operation costs does not depend on the length of the queue.
    """

    def __init__(self, limit: int) -> None:
        """`limit` bounds the requests of which nothing runs, beyond those that find a free slot."""
        self._limit = limit
        self._fresh: OrderedDict[int, SequenceGroup] = OrderedDict()
        self._partial: dict[int, SequenceGroup] = {}
        self._sequences = 0

    def __len__(self) -> int:
        """Sequences that wait."""
        return self._sequences

    def check_room(self, free: int) -> None:
        """Raise `Busy` when the queue is full; `free` slots will take as many requests out of it."""
        check_queue(len(self._fresh) - free, self._limit)

    def add(self, group: SequenceGroup) -> None:
        """Put a new request at the end."""
        self._fresh[group.key] = group
        self._sequences += len(group.waiting)

    def put_back(self, group: SequenceGroup) -> None:
        """Put a request, one of whose sequences waits again, at the head."""
        self._partial.pop(group.key, None)
        self._fresh[group.key] = group
        self._fresh.move_to_end(group.key, last=False)
        self._sequences += 1

    def resume(self, group: SequenceGroup) -> None:
        """Put a request of which nothing runs any more at the end again, so that later ones do not overtake it."""
        self._partial.pop(group.key, None)
        self._fresh[group.key] = group

    def discard(self, group: SequenceGroup) -> None:
        """Take a request out, with all that still waits of it."""
        if self._fresh.pop(group.key, None) or self._partial.pop(group.key, None):
            self._sequences -= len(group.waiting)

    def start_next(self) -> tuple[SequenceGroup, Sequence] | None:
        """Start the sequence whose turn it is, or give None when nothing waits."""
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
