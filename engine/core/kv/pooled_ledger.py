"""The ledger of a unified cache: all slots share their cells, so that one sequence may use those of idle slots."""

from collections.abc import Iterable
from typing import TypeGuard

from typing_extensions import override

from engine.core.kv.cell_changes import CellChange
from engine.core.kv.ledger import KVLedger
from engine.core.kv.pool import CellPool
from engine.core.kv.prefix_files import PrefixFiles
from engine.core.kv.prefix_store import PrefixStore
from engine.core.kv.reuse import PrefixSource
from engine.core.kv.slot import Slot
from engine.core.model import ModelTraits
from engine.core.sequence import Sequence

GROWTH = 8
"""A sequence is started if each one that runs can still grow by this part of its share of the cells."""


class PooledLedger(KVLedger):
    """Keeps the cells of all sequences within those of the cache, and frees cached ones for them.

    A sequence starts as soon as there are cells for its prompt and some more, because most texts end long before their
    limits. If sequences outgrow the cache, the scheduler preempts the youngest.
    """

    def __init__(
        self, slots: int, traits: ModelTraits, store: PrefixStore | None, files: PrefixFiles | None, pool: CellPool
    ) -> None:
        """Create free, empty slots that share the cells of a pool."""
        super().__init__(slots, traits, store, files)
        self._pool = pool
        self._recorded = 0

    @property
    @override
    def active_tokens(self) -> int:
        holders = {slot.seq_id: slot.holder or slot.leaving for slot in self.slots}
        return self._used({seq_id: holder.computed for seq_id, holder in holders.items() if holder})

    @override
    def copy_prefix(self, sequence: Sequence) -> bool:
        if not self._make_room_for_copy(sequence):
            return True
        best = self.best_source(sequence)
        copied = self._copied
        done = super().copy_prefix(sequence)
        if best is not None and self._shares(best.source):
            self._copied = copied  # sharing cells takes no time
        return done

    @override
    def has_room(self, sequence: Sequence, running: Iterable[Sequence]) -> bool:
        growth = self._pool.cells // (GROWTH * len(self.slots))
        held = {one.seq_id: one.computed for one in running}
        best = self.best_source(sequence)
        shares = best is not None and self._shares(best.source) and best.source.holder is not None
        own = len(sequence.tokens) - (best.tokens if best and shares else 0)
        coming = sum(one.pending + growth for one in running)
        return self._used(held) + coming + own + growth <= self._pool.cells

    @override
    def fits(self, cells: int) -> bool:
        return self._used({slot.seq_id: slot.size for slot in self.slots}) + cells <= self._pool.cells

    @override
    def make_room(self, cells: int) -> bool:
        """Evict the least recently used prefixes until so many cells are free. Return whether they are."""
        while not self.fits(cells):
            cached = [slot for slot in self.slots if slot.cached]
            if not cached:
                return False
            self.vacate(min(cached, key=lambda slot: slot.used))
        return True

    @override
    def take_changes(self) -> tuple[CellChange, ...]:
        self._record()
        self._recorded = 0
        return super().take_changes()

    def _make_room_for_copy(self, sequence: Sequence) -> bool:
        """Evict prefixes until the best source can be copied. Return whether it can."""
        while best := self.best_source(sequence):
            if self._shares(best.source):
                break
            if not self.make_room(best.source.size):
                return False
            if self.best_source(sequence) == best:
                break  # otherwise it was evicted itself
        return True

    def _shares(self, source: PrefixSource) -> TypeGuard[Slot]:
        """Return True if a copy of this source takes no cells."""
        return self._pool.shared and isinstance(source, Slot)

    def _used(self, sizes: dict[int, int]) -> int:
        """Return the number of cells of slots that hold so many tokens."""
        self._record()
        return self._pool.used(sizes)

    def _record(self) -> None:
        """Let the pool follow the latest changes."""
        self._pool.record(self._changes[self._recorded :])
        self._recorded = len(self._changes)


def make_ledger(
    slots: int, traits: ModelTraits, store: PrefixStore | None = None, files: PrefixFiles | None = None
) -> KVLedger:
    """Return the ledger of a cache of this kind."""
    if traits.pool is None:
        return KVLedger(slots, traits, store, files)
    return PooledLedger(slots, traits, store, files, CellPool(traits.pool, shared=traits.shares_cells))
