"""Who holds which slot, and which tokens are resident in it. free + held == total, always."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from engine.core.kv.prefix import Prefix, StoredPrefix
from engine.core.kv.prefix_store import WORTH_SAVING, PrefixStore
from engine.core.model import ModelTraits
from engine.core.sequence import Sequence
from engine.core.step import CellChange, Copy, Removal, Swap

WORTH_COPYING = 16
"""Tokens. Fewer are computed as fast as they are copied."""
COPY_COST = 64
"""A copy costs by all cells of its source: about as much for this many of them as to compute one."""
COPIED_AT_ONCE = 4096
"""Cells copied, saved and restored between two passes, about, and as many moved. More would keep neighbours waiting for
longer than a prompt chunk does."""


@dataclass(slots=True)
class Slot:
    """One `seq_id` of the KV cache.

    Attributes:
        seq_id: its id, from 0.
        holder: the sequence that leases it.
        leaving: the sequence that held it last, until its cells are dropped.
        cached: the tokens resident in a free slot.
        partition: whose they are, as in `Prefix`.
        used: when it was last released or copied from, by a count of such events; for least-recently-used eviction.
    """

    seq_id: int
    holder: Sequence | None = None
    leaving: Sequence | None = None
    cached: list[int] = field(default_factory=list)
    partition: str | None = None
    used: int = 0

    @property
    def prefix(self) -> Prefix:
        """What is resident."""
        if self.holder:
            return Prefix(self.holder.tokens, self.holder.computed, self.holder.partition)
        return Prefix(self.cached, len(self.cached), self.partition)

    @property
    def size(self) -> int:
        """Tokens resident."""
        return self.holder.computed if self.holder else len(self.cached)


Source: TypeAlias = Slot | StoredPrefix
"""What cells can be taken over from."""
S = TypeVar("S", bound=Source)


class KVLedger:
    """Leases slots to sequences, each to one at a time, and remembers what released slots still hold.

    What a free slot is about to lose is saved to host memory first, where it is worth that and nobody else has it. It
    decides and records; a runner carries out `take_changes`, in order, before its next pass.

    Attributes:
        slots: every slot, by `seq_id`.
        store: what is saved.
        traits: those of the model whose cells they are.
    """

    def __init__(self, slots: int, traits: ModelTraits, store: PrefixStore | None = None) -> None:
        """Without a `store` nothing is saved."""
        self.slots = [Slot(seq_id) for seq_id in range(slots)]
        self.store = PrefixStore(0, int) if store is None else store
        self.traits = traits
        self._free = set(range(slots))
        self._changes: list[CellChange] = []
        self._copied = 0
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

    @property
    def may_copy(self) -> bool:
        """Whether more cells may be copied before the next pass."""
        return self._copied < COPIED_AT_ONCE

    def lease(self, sequence: Sequence) -> None:
        """Give a free slot to a sequence; what the slot holds of its prompt's beginning counts as computed.

        Raises `IndexError` when no slot is free.
        """
        if not self._free:
            raise IndexError("no slot is free")
        wanted = _wanted(sequence)
        best, most = self.best_source(sequence)
        source, shared = self._best(self.slots, wanted)
        extends = source is not None and 2 * shared >= source.size  # else it is a copy's source, and stays for its own
        slot = self._place(source if extends else None)
        shared = self._reusable(slot, wanted)
        if isinstance(best, StoredPrefix) and _pays(best, most - shared):
            self.store.use(best)  # it is not to make room for what is saved now
        self._save(slot, stays=shared)
        if slot.size > shared:
            self._changes.append(Removal(slot.seq_id, shared))
        self._hand_over(slot, sequence)
        sequence.begin_at(shared)

    def borrow(self, sequence: Sequence) -> bool:
        """Give a sequence's slot what another slot or the store holds of its prompt's beginning, if that saves enough.

        Gives False where that is to wait for a later pass: enough is copied before this one, or it is being saved.
        """
        source, shared = self.best_source(sequence)
        if source is None or not _pays(source, shared - sequence.computed):
            return True
        if not self.may_copy or (isinstance(source, StoredPrefix) and not self.store.is_settled(source)):
            return False
        if isinstance(source, StoredPrefix):
            self._changes.append(self.store.restore(source, sequence.seq_id, shared))
        else:
            self._changes.append(Copy(source.seq_id, sequence.seq_id, shared))
            self._touch(source)
        self._copied += source.size
        sequence.begin_at(shared)
        return True

    def best_source(self, sequence: Sequence) -> tuple[Source | None, int]:
        """From where a sequence can take over most tokens, and how many; of equal ones the smallest."""
        return self._best_of_all((slot for slot in self.slots if slot.holder is not sequence), _wanted(sequence))

    def move(self, source: Slot, target: Slot) -> None:
        """Move a sequence from its slot to another one; what that one holds, for whomever, moves the other way.

        Only a prefix that would take too long to move is given up. Others wait for the pass behind it.
        Raises `RuntimeError` where nobody holds the source.
        """
        moved, other = source.holder, target.holder
        if moved is None:
            raise RuntimeError(f"nobody holds slot {source.seq_id}")
        if len(target.cached) > COPIED_AT_ONCE:
            self._give_up(target)
        there, back = source.size, target.size
        if there and back:
            self._changes.append(Swap(source.seq_id, target.seq_id))
        elif there:
            self._move_cells(source, target, there)
        elif back:
            self._move_cells(target, source, back)
        kept = target.cached, target.partition, target.used
        for slot in (source, target):
            slot.holder = None
            self._free.add(slot.seq_id)
        self._hand_over(target, moved)
        if other:
            self._hand_over(source, other)
        else:
            source.cached, source.partition, source.used = kept

    def release(self, sequence: Sequence, *, keep: bool) -> int:
        """Take a sequence's slot back and give the number of cells it held; `keep` leaves them resident.

        The sequence itself is left as it is: a pass that carries it may be under way.
        """
        slot = self.slots[sequence.seq_id]
        if slot.holder is not sequence:
            raise RuntimeError(f"slot {slot.seq_id} is not held by the sequence that releases it")
        if keep:
            slot.cached, slot.partition = sequence.tokens[: sequence.computed], sequence.partition
        else:
            self._changes.append(Removal(slot.seq_id, 0))
            slot.leaving = sequence
        slot.holder = None
        self._touch(slot)
        self._free.add(slot.seq_id)
        return sequence.computed

    def trim(self, seq_id: int, tokens: int) -> None:
        """Drop the cells of a slot behind its first `tokens`: they were computed for guesses that were wrong."""
        self._changes.append(Removal(seq_id, tokens))

    def evict(self) -> bool:
        """Give up every cached cell; gives whether there were any."""
        cached = [slot for slot in self.slots if slot.cached]
        for slot in cached:
            self._give_up(slot)
        return bool(cached)

    def take_changes(self) -> tuple[CellChange, ...]:
        """What to do to the cells before the next pass, in order; each once, and from now on it counts as done."""
        changes = tuple(self._changes)
        self._changes.clear()
        self._copied = 0
        self.store.settle()
        for change in changes:
            if isinstance(change, Removal):
                self.slots[change.seq_id].leaving = None
        return changes

    @property
    def unclean(self) -> bool:
        """Whether changes wait to be carried out."""
        return bool(self._changes)

    def _save(self, slot: Slot, *, stays: int = 0) -> None:
        """Save what a free slot holds if all but its first `stays` cells are about to go, nobody else has them, and
        they are worth it."""
        if slot.size < WORTH_SAVING or not self.store.has_room(slot.size):
            return
        _, elsewhere = self._best_of_all((other for other in self.slots if other is not slot), slot.prefix)
        lost = slot.size - max(stays, elsewhere)
        if lost >= WORTH_SAVING and _pays(slot, lost):
            self._changes += self.store.save(slot.seq_id, slot.prefix, can_trim=self.traits.can_trim)
            self._copied += slot.size

    def _give_up(self, slot: Slot) -> None:
        """Drop what a slot keeps for its prefix, if it does."""
        if slot.cached:
            self._save(slot)
            self._changes.append(Removal(slot.seq_id, 0))
            slot.cached = []

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

    def _best_of_all(self, slots: Iterable[Slot], wanted: Prefix) -> tuple[Source | None, int]:
        """Of these slots and the store."""
        sources: list[Source] = [*slots]
        if stored := self.store.find(wanted, can_trim=self.traits.can_trim):
            sources.append(stored)
        return self._best(sources, wanted)

    def _best(self, sources: Iterable[S], wanted: Prefix) -> tuple[S | None, int]:
        """The source that holds most of a prefix, and how much; of equal ones the smallest."""
        best: S | None = None
        most = 0
        for source in sources:
            shared = self._reusable(source, wanted)
            if shared > most or (best and shared == most and source.size < best.size):
                best, most = source, shared
        return best, most

    def _reusable(self, source: Source, wanted: Prefix) -> int:
        """How many cells can be taken over from a source, if they may."""
        shared = source.prefix.common(wanted)
        return shared if self.traits.can_trim or shared == source.size else 0


def _pays(source: Source, tokens: int) -> bool:
    """Whether so many tokens are worth a copy of all that a source holds."""
    return tokens >= max(WORTH_COPYING, source.size // COPY_COST)


def _wanted(sequence: Sequence) -> Prefix:
    """What a sequence could take over."""
    return Prefix(sequence.tokens, sequence.reusable, sequence.partition)
