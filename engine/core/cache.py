"""Who holds which slot, and which tokens are resident in it. free + held == total, always."""

from dataclasses import dataclass, field

from engine.core.sequence import Sequence
from engine.core.step import CellChange, Copy, Removal, Swap

WORTH_COPYING = 16
"""Tokens. Fewer are computed as fast as they are copied."""
COPY_COST = 64
"""A copy costs by all cells of its source: about as much for this many of them as to compute one."""


@dataclass(slots=True)
class Slot:
    """One `seq_id` of the KV cache.

    Attributes:
        seq_id: its id, from 0.
        holder: the sequence that leases it.
        leaving: the sequence that held it last, until its cells are dropped.
        cached: the tokens resident in a free slot.
        used: when it was last released or copied from, by a count of such events; for least-recently-used eviction.
    """

    seq_id: int
    holder: Sequence | None = None
    leaving: Sequence | None = None
    cached: list[int] = field(default_factory=list)
    used: int = 0

    def shared_with(self, sequence: Sequence) -> int:
        """How many tokens from its start on another sequence could take over."""
        most = sequence.reusable
        if self.holder is None:
            return common_prefix(self.cached, sequence.tokens, min(most, len(self.cached)))
        if not self.holder.shares:
            return 0
        return common_prefix(self.holder.tokens, sequence.tokens, min(most, self.holder.computed))

    @property
    def size(self) -> int:
        """Tokens resident."""
        return self.holder.computed if self.holder else len(self.cached)


class KVLedger:
    """Leases slots to sequences, each to one at a time, and remembers what released slots still hold.

    It decides and records; a runner carries out `take_changes`, in order, before its next pass.

    Attributes:
        slots: every slot, by `seq_id`.
        trims: whether the last cells of a slot can be dropped alone.
    """

    def __init__(self, slots: int, *, trims: bool) -> None:
        self.slots = [Slot(seq_id) for seq_id in range(slots)]
        self.trims = trims
        self._free = set(range(slots))
        self._changes: list[CellChange] = []
        self._clock = 0

    @property
    def free(self) -> int:
        """Slots nobody holds."""
        return len(self._free)

    @property
    def held(self) -> int:
        """Slots leased to a sequence."""
        return len(self.slots) - len(self._free)

    @property
    def active_tokens(self) -> int:
        """Cells of running sequences, and of those that left until their cells are dropped."""
        return sum(holder.computed for slot in self.slots if (holder := slot.holder or slot.leaving))

    @property
    def cached_tokens(self) -> int:
        """Cells kept in free slots for their prefix."""
        return sum(len(slot.cached) for slot in self.slots)

    def lease(self, sequence: Sequence) -> None:
        """Give a free slot to a sequence; what the slot holds of its prompt's beginning counts as computed.

        Raises `IndexError` when no slot is free.
        """
        if not self._free:
            raise IndexError("no slot is free")
        source, shared = self.best_source(sequence)
        extends = source is not None and 2 * shared >= source.size  # else it is a copy's source, and stays for its own
        slot = self._place(source if extends else None)
        shared = self._reusable(slot, sequence)
        if slot.size > shared:
            self._changes.append(Removal(slot.seq_id, shared))
        self._hand_over(slot, sequence)
        sequence.begin_at(shared)

    def borrow(self, sequence: Sequence) -> int:
        """Copy to a sequence's slot what another one holds of its prompt's beginning, if that saves enough.

        Gives the number of cells that the copy moves.
        """
        source, shared = self.best_source(sequence)
        if source is None or shared - sequence.computed < max(WORTH_COPYING, source.size // COPY_COST):
            return 0
        self._changes.append(Copy(source.seq_id, sequence.seq_id, shared))
        self._touch(source)
        sequence.begin_at(shared)
        return source.size

    def best_source(self, sequence: Sequence) -> tuple[Slot | None, int]:
        """The slot from which a sequence can take over most tokens, and how many; of equal ones the smallest."""
        best: Slot | None = None
        most = 0
        for slot in self.slots:
            shared = self._reusable(slot, sequence) if slot.holder is not sequence else 0
            if shared > most or (best and shared == most and slot.size < best.size):
                best, most = slot, shared
        return best, most

    def move(self, source: Slot, target: Slot) -> None:
        """Move a sequence from its slot to another one; who holds that one moves the other way.

        What a free slot holds for its prefix is given up. Raises `RuntimeError` where nobody holds the source.
        """
        moved, other = source.holder, target.holder
        if moved is None:
            raise RuntimeError(f"nobody holds slot {source.seq_id}")
        if target.cached:
            self._changes.append(Removal(target.seq_id, 0))
        there, back = moved.computed, other.computed if other else 0
        if there and back:
            self._changes.append(Swap(source.seq_id, target.seq_id))
        elif there:
            self._move_cells(source, target, there)
        elif back:
            self._move_cells(target, source, back)
        for slot in (source, target):
            slot.holder, slot.cached = None, []
            self._free.add(slot.seq_id)
        self._hand_over(target, moved)
        if other:
            self._hand_over(source, other)

    def release(self, sequence: Sequence, *, keep: bool) -> int:
        """Take a sequence's slot back and give the number of cells it held; `keep` leaves them resident.

        The sequence itself is left as it is: a pass that carries it may be under way.
        """
        slot = self.slots[sequence.seq_id]
        if slot.holder is not sequence:
            raise RuntimeError(f"slot {slot.seq_id} is not held by the sequence that releases it")
        if keep:
            slot.cached = sequence.tokens[: sequence.computed]
        else:
            self._changes.append(Removal(slot.seq_id, 0))
            slot.leaving = sequence
        slot.holder = None
        self._touch(slot)
        self._free.add(slot.seq_id)
        return sequence.computed

    def evict(self) -> bool:
        """Give up every cached cell; gives whether there were any."""
        cached = [slot for slot in self.slots if slot.cached]
        for slot in cached:
            self._changes.append(Removal(slot.seq_id, 0))
            slot.cached = []
        return bool(cached)

    def take_changes(self) -> tuple[CellChange, ...]:
        """What to do to the cells before the next pass, in order; each once, and from now on it counts as done."""
        changes = tuple(self._changes)
        self._changes.clear()
        for change in changes:
            if isinstance(change, Removal):
                self.slots[change.seq_id].leaving = None
        return changes

    @property
    def unclean(self) -> bool:
        """Whether changes wait to be carried out."""
        return bool(self._changes)

    def _move_cells(self, source: Slot, target: Slot, tokens: int) -> None:
        self._changes.append(Copy(source.seq_id, target.seq_id, tokens))
        self._changes.append(Removal(source.seq_id, 0))

    def _hand_over(self, slot: Slot, sequence: Sequence) -> None:
        self._free.remove(slot.seq_id)
        slot.holder, slot.cached = sequence, []
        sequence.seq_id = slot.seq_id

    def _touch(self, slot: Slot) -> None:
        self._clock += 1
        slot.used = self._clock

    def _place(self, source: Slot | None) -> Slot:
        """The free slot that keeps the held ones neighbours; then the source itself; then an empty or the oldest one.

        Neighbouring `seq_id`s share one pass over the weights, so a lone one costs every step a pass of its own.
        """

        def cost(slot: Slot) -> tuple[int, bool, int, int]:
            return -self._neighbours(slot), slot is not source, slot.used if slot.cached else 0, slot.seq_id

        return min((self.slots[seq_id] for seq_id in self._free), key=cost)

    def _neighbours(self, slot: Slot) -> int:
        """How many of the slots beside this one are held."""
        beside = (slot.seq_id - 1, slot.seq_id + 1)
        return sum(0 <= at < len(self.slots) and self.slots[at].holder is not None for at in beside)

    def _reusable(self, slot: Slot, sequence: Sequence) -> int:
        """How many of a slot's cells a sequence can start from, if it may."""
        shared = slot.shared_with(sequence) if sequence.shares else 0
        return shared if self.trims or shared == slot.size else 0


def common_prefix(a: list[int], b: list[int], most: int) -> int:
    """How many of their first `most` tokens two sequences share, by bisection: slices compare at the speed of C."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
