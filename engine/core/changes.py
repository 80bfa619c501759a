"""Applies changes with a runner."""

from collections.abc import Iterable

from engine.core.kv.cache import KVCache
from engine.core.kv.cell_changes import CellChange, Copy, Forget, Removal, Restore, Rewind, Save, Shift, Swap
from engine.core.kv.prefix_file import Discard, Fetch, FileChange, Spill, SpillSlot
from engine.core.step import Change, Close, Runner


def carry_out(changes: Iterable[Change], runner: Runner) -> list[int]:
    """Apply changes in order. Return the keys of the cells that could not be saved, for lack of memory."""
    lost, cache = [], runner.cache
    for change in changes:
        if isinstance(change, Close):
            runner.close(change.sequence)
        elif not isinstance(change, Save):
            _carry_out(change, cache)
        elif not cache.save(change):
            lost.append(change.key)
    return lost


def _carry_out(change: CellChange, cache: KVCache) -> None:
    match change:
        case Removal():
            cache.remove(change)
        case Shift():
            cache.shift(change)
        case Copy():
            cache.copy(change)
        case Swap():
            cache.swap(change)
        case Restore():
            cache.restore(change)
        case Rewind():
            cache.rewind(change)
        case Forget():
            cache.forget(change)
        case Spill() | SpillSlot() | Fetch() | Discard():
            _carry_out_file(change, cache)


def _carry_out_file(change: FileChange, cache: KVCache) -> None:
    match change:
        case Spill():
            cache.spill(change)
        case SpillSlot():
            cache.spill_slot(change)
        case Fetch():
            cache.fetch(change)
        case Discard():
            cache.discard(change)
