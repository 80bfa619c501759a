"""Who holds which slot, and which tokens are resident in it. free + held == total, always."""

from dataclasses import dataclass, field

from engine.core.sequence import Sequence
from engine.core.step import Removal

WORTH_REUSING = 64
"""Tokens. Below one efficient prompt chunk, where a sequence sits matters more than what it need not compute."""


@dataclass(slots=True)
class Slot:
    """One `seq_id` of the KV cache.

    Attributes:
        seq_id: its id, from 0.
        holder: the sequence that leases it.
        leaving: the sequence that held it last, until its cells are dropped.
        cached: the tokens resident in a free slot.
        used: when it was last released, in releases; for least-recently-used eviction.
    """

    seq_id: int
    holder: Sequence | None = None
    leaving: Sequence | None = None
    cached: list[int] = field(default_factory=list)
    used: int = 0


class KVLedger:
    """Leases slots to sequences, each to one at a time, and remembers what released slots still hold.

    It decides and records; a runner carries out `take_removals` before its next pass.
    """

    def __init__(self, slots: int, *, trims: bool) -> None:
        """`trims` says whether the last cells of a slot can be dropped alone."""
        self.slots = [Slot(seq_id) for seq_id in range(slots)]
        self._trims = trims
        self._free = set(range(slots))
        self._removals: list[Removal] = []
        self._releases = 0

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

    def lease(self, sequence: Sequence, *, reuse: bool) -> None:
        """Give a free slot to a sequence; what it has in common with the slot's cells counts as computed.

        Raises `IndexError` when no slot is free.
        """
        if not self._free:
            raise IndexError("no slot is free")
        slot, shared = self._choose(sequence.tokens, reuse=reuse)
        if len(slot.cached) > shared:
            self._removals.append(Removal(slot.seq_id, shared))
        self._free.remove(slot.seq_id)
        slot.holder, slot.cached = sequence, []
        sequence.seq_id, sequence.computed = slot.seq_id, shared
        if sequence.cached is None:
            sequence.cached = shared

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
            self._removals.append(Removal(slot.seq_id, 0))
            slot.leaving = sequence
        self._releases += 1
        slot.holder, slot.used = None, self._releases
        self._free.add(slot.seq_id)
        return sequence.computed

    def take_removals(self) -> tuple[Removal, ...]:
        """The cells to drop before the next pass, in order; each once, and from now on they count as dropped."""
        removals = tuple(self._removals)
        self._removals.clear()
        for removal in removals:
            self.slots[removal.seq_id].leaving = None
        return removals

    @property
    def unclean(self) -> bool:
        """Whether removals wait to be carried out."""
        return bool(self._removals)

    def _choose(self, tokens: list[int], *, reuse: bool) -> tuple[Slot, int]:
        """A long resident prefix first; else the place that keeps the held slots neighbours.

        Neighbouring `seq_id`s share one pass over the weights, so a lone one costs every step a pass of its own. Where
        nobody is beside any free slot, the oldest cache is evicted; beside others the lowest place is taken, because
        going by age would spread the held slots over them all.
        """
        free = [self.slots[seq_id] for seq_id in self._free]
        shared = {slot.seq_id: self._reusable(slot, tokens) if reuse else 0 for slot in free}
        best = max(free, key=lambda slot: shared[slot.seq_id])
        if shared[best.seq_id] < WORTH_REUSING:
            best = min(free, key=lambda slot: (*self._place(slot, shared[slot.seq_id]), slot.seq_id))
        return best, shared[best.seq_id]

    def _place(self, slot: Slot, shared: int) -> tuple[int, int, int]:
        """The less, the better a place for a sequence that has `shared` tokens in common with it."""
        neighbours = self._neighbours(slot)
        return -neighbours, -shared, 0 if neighbours else slot.used

    def _neighbours(self, slot: Slot) -> int:
        """How many of the slots beside this one are held."""
        beside = (slot.seq_id - 1, slot.seq_id + 1)
        return sum(0 <= at < len(self.slots) and self.slots[at].holder is not None for at in beside)

    def _reusable(self, slot: Slot, tokens: list[int]) -> int:
        """How many resident tokens a prompt can start from; its last token is always computed, for its logits."""
        shared = common_prefix(slot.cached, tokens[:-1])
        if shared < len(slot.cached) and not self._trims:
            return 0
        return shared


def common_prefix(a: list[int], b: list[int]) -> int:
    """How many tokens two sequences share from their start, by bisection: slices compare at the speed of C."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
