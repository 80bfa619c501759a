"""The ledger of the KV cache: leases of slots, and the tokens that are resident in them."""

from collections.abc import Iterable

from engine.core.kv.cell_changes import CellChange, Copy, Removal, Shift, Swap
from engine.core.kv.disk_tier import DiskTier
from engine.core.kv.leases import SlotLeases
from engine.core.kv.prefix import Prefix, StoredPrefix
from engine.core.kv.prefix_file import FileReport, FileWritten
from engine.core.kv.prefix_files import PrefixFiles
from engine.core.kv.prefix_store import MIN_SPEED_OF_SAVES, WORTH_SAVING, PrefixStore
from engine.core.kv.reuse import PrefixSource, Reuse, ReuseFinder, S
from engine.core.kv.slot import Slot, place
from engine.core.model import ModelTraits
from engine.core.sequence import Sequence

COPIED_AT_ONCE = 4096
"""Cells copied, saved and restored between two steps, and as many moved. More would delay other sequences too long."""


class KVLedger(SlotLeases):
    """Leases slots, and records the contents of released ones.

    Before cells of a free slot are dropped or overwritten, they are saved to host memory if they are worth it and exist
    nowhere else. The ledger decides and records; a runner applies `take_changes`, in order, before its next step.
    """

    store: PrefixStore
    """The saved prefixes."""
    disk: DiskTier | None
    """The prefixes in files; unset without any."""
    traits: ModelTraits
    """The traits of the model."""
    reused: int
    """Number of prompt tokens whose cells sequences have reused."""

    def __init__(
        self, slots: int, traits: ModelTraits, store: PrefixStore | None = None, files: PrefixFiles | None = None
    ) -> None:
        """Create free, empty slots. Without a `store` no cells are saved; without `files` none are written to disk."""
        super().__init__(slots)
        self.store = PrefixStore(0, int) if store is None else store
        self.disk = None if files is None else DiskTier(self.store, files, traits)
        self.traits = traits
        self.reused = 0
        self._finder = ReuseFinder(self.store, traits)
        self._changes: list[CellChange] = []
        self._copied = 0

    @property
    def may_copy(self) -> bool:
        """True if more cells may be copied before the next step."""
        return self._copied < COPIED_AT_ONCE

    def lease(self, sequence: Sequence) -> None:
        """Lease a free slot to a sequence. The part of its prompt that the slot holds counts as computed.

        Raises:
            IndexError: no slot is free.
        """
        if not self._free:
            raise IndexError("no slot is free")
        wanted = _wanted(sequence)
        source = self._finder.best_slot(self.slots, wanted)
        extends = source and 2 * source.tokens >= source.source.size  # else it stays: its rest is worth more
        slot = self._wished(sequence) or place(self.slots, source.source if source and extends else None)
        kept = self._saved_only(self._finder.best_slot((slot,), wanted))
        shared = kept.tokens if kept else 0
        best = self.best_source(sequence) if wanted.size - shared >= self.traits.worth_copying else None
        if best and self.traits.copy_pays(best.source.size, best.tokens - shared):
            self._use(best)  # the save below must not evict it
        if kept:
            self._use(kept)
        self._save(slot, stays=shared)
        shared = self._keep(slot, kept)
        self._hand_over(slot, sequence)
        if self.disk:
            self.disk.resume()
        self.reused += sequence.begin_at(shared)

    def fetch(self, sequence: Sequence) -> bool:
        """Begin to read files that hold the beginning of a sequence's prompt, if that pays. Return whether it does."""
        if self.disk is None:
            return False
        best = self.best_source(sequence)
        changes = self.disk.fetch(self.slots, _wanted(sequence), max(sequence.computed, best.tokens if best else 0))
        self._changes += changes
        return bool(changes)

    def record(self, report: FileReport) -> None:
        """Record what became of a file. After a failed write, the next one is tried with the next request."""
        if self.disk:
            self._changes += self.disk.record(report)
        if isinstance(report, FileWritten):
            self._spill_if_idle()

    def copy_prefix(self, sequence: Sequence) -> bool:
        """Copy the beginning of a sequence's prompt from another slot or the store to its slot, if that saves enough.

        Return False if it must wait for a later step: enough is copied before this one, or the source is being saved.
        """
        if sequence.reusable - sequence.computed < self.traits.worth_copying:
            return True
        best = self.best_source(sequence)
        if best is None or not self.traits.copy_pays(best.source.size, best.tokens - sequence.computed):
            return True
        if not self.may_copy or self._saved_only(best) is None:
            return False
        self._copy(best, self.slots[sequence.seq_id])
        self.reused += sequence.begin_at(best.tokens)
        return True

    def best_source(self, sequence: Sequence) -> Reuse[PrefixSource] | None:
        """Return the source with most reusable tokens; the smallest of equal ones."""
        return self._finder.best((slot for slot in self.slots if slot.holder is not sequence), _wanted(sequence))

    def save_checkpoint(self, sequence: Sequence) -> None:
        """Save the state of a running sequence, so that it can go back to it, and others can begin with it."""
        if sequence.shares and self.traits.needs_checkpoints:
            computed = sequence.computed
            prefix = Prefix(sequence.tokens[:computed], computed, sequence.partition, sequence.origin)
            self._changes += self.store.save_checkpoint(sequence.seq_id, prefix)

    def move(self, source: Slot, target: Slot) -> None:
        """Move a sequence to another slot. The contents of that slot move the other way.

        A prefix that would take too long to move is dropped.

        Raises:
            RuntimeError: the source is free.
        """
        moved = source.holder
        if moved is None:
            raise RuntimeError(f"slot {source.seq_id} is free")
        if len(target.cached) > COPIED_AT_ONCE:
            self.vacate(target)
        there, back = source.size, target.size
        target.floor, source.floor = there, back
        if there and back:
            self._changes.append(Swap(source.seq_id, target.seq_id))
        elif there:
            self._move_cells(source, target, there)
        elif back:
            self._move_cells(target, source, back)
        self._exchange(source, target, moved)

    def release(self, sequence: Sequence, *, keep: bool, returns: bool = False) -> int:
        """Take back the slot of a sequence and return the number of its cells; with `keep` they stay resident.

        The sequence itself does not change: a step that computes it may be running. With `returns` it comes again.
        """
        slot = self.slots[sequence.seq_id]
        self._give_back(slot, sequence)
        if keep:
            slot.cached = sequence.tokens[: sequence.computed]
            slot.partition, slot.origin = sequence.partition, sequence.origin
        else:
            self._remove(slot, 0)
            slot.leaving = sequence
        slot.returns = returns
        return sequence.computed

    def erase(self, slot: Slot) -> None:
        """Drop the cells of a free slot, and what begins alike in the store."""
        self._changes += self.store.forget_alike(slot.prefix)
        self._remove(slot, 0)
        slot.cached = []

    def vacate(self, slot: Slot) -> None:
        """Drop the cached cells of a slot, which are saved if that is worth it."""
        if slot.cached:
            self._save(slot)
            self._remove(slot, 0)
            slot.cached = []

    def fill(self, slot: Slot, prefix: Prefix) -> None:
        """Record the cells that were put into a free, empty slot."""
        slot.cached, slot.partition, slot.origin = prefix.tokens, prefix.partition, prefix.origin
        slot.floor = prefix.size
        self._touch(slot)

    def shift(self, sequence: Sequence) -> None:
        """Discard tokens of a sequence whose slot is full. Its cells are not shared from now on."""
        start, count = sequence.discard()
        self._changes.append(Shift(sequence.seq_id, start, count))

    def trim(self, sequence: Sequence, start: int) -> None:
        """Drop the cells of rejected draft tokens of a sequence, which may have ended.

        Where they can be dropped only with all others of their step, the sequence goes back to `start`, before it.
        """
        slot = self.slots[sequence.seq_id]
        if not slot.size:  # its cells are dropped already
            return
        if self.traits.drops_steps:
            sequence.computed = start
            slot.cached = slot.cached[:start]
        self._changes.append(Removal(slot.seq_id, slot.size))

    def has_room(self, sequence: Sequence, running: Iterable[Sequence]) -> bool:  # noqa: ARG002
        """Return whether there are cells for one more sequence. A slot has cells of its own."""
        return True

    def fits(self, cells: int) -> bool:  # noqa: ARG002
        """Return whether so many cells are free."""
        return True

    def make_room(self, cells: int) -> bool:  # noqa: ARG002
        """Return whether there are cells for a step, after cached ones are evicted if they must be."""
        return True

    def evict(self) -> bool:
        """Drop all cached cells. Return whether there were any."""
        cached = [slot for slot in self.slots if slot.cached]
        for slot in cached:
            self.vacate(slot)
        return bool(cached)

    def take_changes(self) -> tuple[CellChange, ...]:
        """Return the cell changes to apply before the next step, in order. From now on they count as applied."""
        self._spill_if_idle()
        changes = tuple(self._changes)
        self._changes.clear()
        self._copied = 0
        self.store.mark_saved()
        for change in changes:
            if isinstance(change, Removal):
                self.slots[change.seq_id].leaving = None
        return changes

    @property
    def unclean(self) -> bool:
        """True if cell changes wait to be applied."""
        return bool(self._changes)

    def _save(self, slot: Slot, *, stays: int = 0) -> None:
        """Save a free slot if the cells to be dropped, all after the first `stays`, are worth it and unique."""
        slow = self.traits.cells_per_token < MIN_SPEED_OF_SAVES and not slot.returns
        if slow or slot.size < WORTH_SAVING or not self.store.has_room(slot.size):
            return
        elsewhere = self._finder.best((other for other in self.slots if other is not slot), slot.prefix)
        lost = slot.size - max(stays, elsewhere.tokens if elsewhere else 0)
        if lost >= WORTH_SAVING and self.traits.copy_pays(slot.size, lost):
            self._changes += self.store.save(slot.seq_id, slot.prefix, can_trim=not self.traits.needs_checkpoints)
            if self.disk:
                self._changes += self.disk.spill_saved()
            self._copied += slot.size

    def _spill_if_idle(self) -> None:
        """Write cached cells to a file. While sequences run, the copy would delay them."""
        if self.disk and not self.held:
            self._changes += self.disk.spill_idle(self.slots)

    def _keep(self, slot: Slot, kept: Reuse[Slot] | None) -> int:
        """Drop the cells of a free slot, except those to reuse. Return how many stay."""
        if kept and kept.checkpoint and kept.checkpoint not in self.store:
            kept = None  # it was evicted
        shared = kept.tokens if kept else 0
        if kept and kept.checkpoint:
            self._changes.append(self.store.rewind(kept.checkpoint, slot.seq_id))
            slot.floor = shared
        elif slot.size > shared:
            self._remove(slot, shared)
        return shared

    def _remove(self, slot: Slot, start: int) -> None:
        self._changes.append(Removal(slot.seq_id, start))
        slot.floor = min(slot.floor, start)

    def _copy(self, reuse: Reuse[PrefixSource], slot: Slot) -> None:
        """Replace the cells of a slot by those to reuse."""
        source = reuse.source
        tokens = source.size if reuse.checkpoint else reuse.tokens
        if isinstance(source, StoredPrefix):
            self._changes.append(self.store.restore(source, slot.seq_id, tokens))
        else:
            self._changes.append(Copy(source.seq_id, slot.seq_id, tokens))
            self._touch(source)
        if reuse.checkpoint:
            self._changes.append(self.store.rewind(reuse.checkpoint, slot.seq_id))
        slot.floor = reuse.tokens
        self._copied += source.size

    def _saved_only(self, reuse: Reuse[S] | None) -> Reuse[S] | None:
        """Return the cells to reuse, if none of them is just being saved."""
        return reuse if reuse and all(map(self.store.is_saved, reuse.stored)) else None

    def _use(self, reuse: Reuse[S]) -> None:
        """Make the parts in host memory the last to be evicted."""
        for stored in reuse.stored:
            self.store.use(stored)

    def _move_cells(self, source: Slot, target: Slot, tokens: int) -> None:
        self._changes.append(Copy(source.seq_id, target.seq_id, tokens))
        self._changes.append(Removal(source.seq_id, 0))


def _wanted(sequence: Sequence) -> Prefix:
    """Return the prefix that a sequence could reuse."""
    return Prefix(sequence.tokens, sequence.reusable, sequence.partition)
