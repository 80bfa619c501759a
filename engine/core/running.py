"""The running sequences, each in a slot, and the choice of those that start and give way."""

from engine.core.counters import Counters
from engine.core.group import SequenceGroup
from engine.core.kv.ledger import KVLedger
from engine.core.kv.prefix_waiters import PrefixWaiters
from engine.core.queue import Queue
from engine.core.sequence import Sequence


class RunningSequences:
    """The sequences that hold slots, in the order in which they started."""

    def __init__(self, ledger: KVLedger, queue: Queue, counters: Counters) -> None:
        """Start with none: every slot is free. Sequences come from the queue, and preempted ones return to it."""
        self._ledger = ledger
        self._queue = queue
        self._counters = counters
        self._groups: dict[Sequence, SequenceGroup] = {}
        self._prefix_waiters = PrefixWaiters(ledger)
        self._crowded = False

    def __len__(self) -> int:
        """Return the number of sequences."""
        return len(self._groups)

    def __contains__(self, sequence: Sequence) -> bool:
        """Return whether a sequence holds a slot."""
        return sequence in self._groups

    @property
    def requests(self) -> int:
        """Number of requests that they belong to."""
        return len(set(self._groups.values()))

    def group_of(self, sequence: Sequence) -> SequenceGroup:
        """Return the request of a sequence that holds a slot."""
        return self._groups[sequence]

    def admit(self) -> list[SequenceGroup]:
        """Start sequences while there are slots and cells for them. Return the requests whose first one has started."""
        self._prefix_waiters.resume_ready(self._groups)
        begun = []
        while self._may_admit and self._ledger.may_copy and self._find_slot() and (turn := self._queue.start_next()):
            group, sequence = turn
            self._ledger.lease(sequence)
            self._prefix_waiters.start(sequence, self._groups)
            self._queue.charge(group, sequence)
            self._groups[sequence] = group
            if not group.started:
                group.started = True
                begun.append(group)
        return begun

    @property
    def can_admit(self) -> bool:
        """True if `admit` may start a sequence, apart from the limit of copied cells."""
        return len(self._queue) > 0 and self._may_admit and (self._ledger.free > 0 or self._rival() is not None)

    def ready(self) -> list[Sequence]:
        """Return the sequences that do not wait for another one to compute their prefix."""
        return [sequence for sequence in self._groups if sequence not in self._prefix_waiters]

    def leave(self, sequence: Sequence, *, keep: bool, returns: bool = False) -> int:
        """Take back the slot of a sequence. Return the number of cells that it held: see `KVLedger.release`."""
        del self._groups[sequence]
        self._queue.settle(sequence)
        self._crowded = False
        return self._ledger.release(sequence, keep=keep, returns=returns)

    @property
    def youngest(self) -> Sequence:
        """The last choice of the last request. There must be one."""
        return max(self._groups, key=lambda sequence: (self._groups[sequence].key, sequence.choice))

    def preempt(self, sequence: Sequence) -> None:
        """Preempt one of several sequences for its cells. None starts until another one has ended."""
        self._queue.put_back(self._put_back(sequence))
        self._ledger.evict()
        self._crowded = True

    @property
    def _may_admit(self) -> bool:
        """True if a sequence waits, and there are cells for it, so that it preempts none."""
        sequence = self._queue.next_sequence
        if sequence is None or not self._groups:
            return sequence is not None
        return not self._crowded and self._ledger.has_room(sequence, self._groups)

    def _find_slot(self) -> bool:
        """Return whether a slot is free, after the rival of a waiting request is preempted if there is one."""
        if self._ledger.free:
            return True
        rival = self._rival()
        if rival is not None:
            self._queue.give_way(self._put_back(rival))
        return rival is not None

    def _rival(self) -> Sequence | None:
        """Return the sequence that gives its slot to a waiting request of another client: the one with fewest cells.

        Its request keeps at least one sequence.
        """
        client = self._queue.next_client
        rivals = (
            sequence
            for sequence, group in self._groups.items()
            if client is not None and group.client != client and len(group.running) > 1
        )
        return min(rivals, key=lambda sequence: sequence.computed, default=None)

    def _put_back(self, sequence: Sequence) -> SequenceGroup:
        """Take back the slot of a sequence, which will continue in another one. Return its request.

        A full one discards tokens at once: all of them do not fit into a slot again, where they are computed together.
        """
        group = self._groups[sequence]
        if sequence.full:
            sequence.discard()
        self.leave(sequence, keep=sequence.shares, returns=True)
        group.put_back(sequence)
        self._counters.preempted += 1
        return group
