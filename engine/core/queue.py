"""The queue of requests with sequences that wait for a slot."""

from collections import OrderedDict
from collections.abc import Iterator
from itertools import chain

from engine.core.fair.turns import FairTurns
from engine.core.group import SequenceGroup
from engine.core.sequence import Sequence
from engine.fairness.shares import Shares


class Queue:
    """Requests in three ranks, each served only while those before it are empty.

    1. Requests that were preempted. Their clients have paid for them, so that they keep their place at the head.
    2. Requests without a running sequence: clients take turns by tokens, and a client's requests come by priority.
    3. Further choices of requests with running sequences. So a request with more choices than there are slots gets
       slots as they become free and never delays another request. The client that is due first comes first, and of its
       requests the one with the fewest running choices.

    The cost of an operation does not depend on the length of the queue, except for the logarithm of a heap.
    """

    def __init__(self, limit: int) -> None:
        """Create an empty queue.

        Args:
            limit: maximum number of requests without a running sequence, besides those that will take a free slot.
        """
        self._shares = Shares(limit)
        self._preempted: OrderedDict[int, SequenceGroup] = OrderedDict()
        self._turns: FairTurns[SequenceGroup, Sequence] = FairTurns()
        self._partial: dict[int, SequenceGroup] = {}
        self._sequences = 0

    def __len__(self) -> int:
        """Return the number of waiting sequences."""
        return self._sequences

    @property
    def next_client(self) -> str | None:
        """The client of the next request that is not in the last rank; unset if there is no such request."""
        group = self._first_unstarted
        return None if group is None else group.client

    @property
    def next_sequence(self) -> Sequence | None:
        """The sequence that `start_next` would start; unset if the queue is empty."""
        group = self._first_unstarted or self._first_partial
        return None if group is None else group.waiting[0]

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
        if group.key not in self._preempted:
            self._preempted[group.key] = group
            self._shares.enter(group.client)
        self._preempted.move_to_end(group.key, last=False)
        self._sequences += 1

    def give_way(self, group: SequenceGroup) -> None:
        """Let a request wait behind all others after one of several running sequences was preempted."""
        self._partial[group.key] = group
        self._sequences += 1

    def resume(self, group: SequenceGroup) -> None:
        """Append a request without a running sequence any more, so that later requests do not overtake it."""
        if group.key not in self._preempted:
            self._partial.pop(group.key, None)
            self._append(group)

    def discard(self, group: SequenceGroup) -> None:
        """Remove a request with all its waiting sequences."""
        if self._preempted.pop(group.key, None) or self._turns.discard(group):
            self._shares.leave(group.client)
        elif not self._partial.pop(group.key, None):
            return
        self._sequences -= len(group.waiting)

    def start_next(self) -> tuple[SequenceGroup, Sequence] | None:
        """Start the next sequence. Return it with its request, or None if the queue is empty. `charge` must follow."""
        group = self._take_unstarted() or self._first_partial
        if group is None:
            return None
        sequence = group.start()
        self._sequences -= 1
        if group.waiting:
            self._partial[group.key] = group
        else:
            self._partial.pop(group.key, None)
        return group, sequence

    def charge(self, group: SequenceGroup, sequence: Sequence) -> None:
        """Charge a client for a sequence that has started, after cells were reused."""
        self._turns.begin(group, sequence, sequence.cost)

    def settle(self, sequence: Sequence) -> None:
        """Charge what was computed instead, after the sequence has left its slot."""
        self._turns.end(sequence)

    def order(self) -> Iterator[int]:
        """Return the keys of the requests in the first two ranks, in the order in which they will start.

        The order is that of the estimated costs. Only the call needs the caller's lock; the iteration does not.
        """
        turns = self._turns.order(lambda group: group.cost)
        return chain(list(self._preempted), (group.key for group in turns))

    @property
    def _first_unstarted(self) -> SequenceGroup | None:
        """The next request of the first two ranks."""
        return next(iter(self._preempted.values()), None) or self._turns.first

    @property
    def _first_partial(self) -> SequenceGroup | None:
        """The next request of the last rank."""
        return min(self._partial.values(), key=self._rank, default=None)

    def _append(self, group: SequenceGroup) -> None:
        self._turns.add(group)
        self._shares.enter(group.client)

    def _take_unstarted(self) -> SequenceGroup | None:
        """Take the next request of the first two ranks."""
        group = self._preempted.popitem(last=False)[1] if self._preempted else self._turns.take()
        if group is not None:
            self._shares.leave(group.client)
        return group

    def _rank(self, group: SequenceGroup) -> tuple[int, int]:
        return self._turns.round_of(group.client), len(group.running)
