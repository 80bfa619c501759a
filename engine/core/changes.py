"""Applies changes with a runner."""

from collections.abc import Iterable

from engine.core.kv.cell_changes import Copy, Forget, Removal, Restore, Rewind, Save, Shift, Swap
from engine.core.kv.prefix_file import Discard, Fetch, FileChange, Spill, SpillSlot
from engine.core.step import Change, Close, Runner


def carry_out(changes: Iterable[Change], runner: Runner) -> list[int]:
    """Apply changes in order. Return the keys of the cells that could not be saved, for lack of memory."""
    lost = []
    for change in changes:
        if not isinstance(change, Save):
            _carry_out(change, runner)
        elif not runner.save(change):
            lost.append(change.key)
    return lost


def _carry_out(change: Change, runner: Runner) -> None:
    match change:
        case Removal():
            runner.remove(change)
        case Shift():
            runner.shift(change)
        case Copy():
            runner.copy(change)
        case Swap():
            runner.swap(change)
        case Restore():
            runner.restore(change)
        case Rewind():
            runner.rewind(change)
        case Forget():
            runner.forget(change)
        case Spill() | SpillSlot() | Fetch() | Discard():
            _carry_out_file(change, runner)
        case Close(sequence):
            runner.close(sequence)


def _carry_out_file(change: FileChange, runner: Runner) -> None:
    match change:
        case Spill():
            runner.spill(change)
        case SpillSlot():
            runner.spill_slot(change)
        case Fetch():
            runner.fetch(change)
        case Discard():
            runner.discard(change)
