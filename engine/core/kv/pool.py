"""The cells that all slots share, where one cell may belong to several sequences."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from engine.core.kv.cell_changes import CellChange, Copy, Removal, Restore, Rewind


@dataclass(slots=True, eq=False)
class _Run:
    """Consecutive cells of a shared prefix."""

    length: int
    """Number of cells."""


class CellPool:
    """Counts the cells of a unified cache. If cells are shared, a copied prefix takes none.

    Only shared prefixes are recorded; all further tokens of a slot have cells of their own.
    """

    cells: int
    """Number of cells of all slots together."""

    shared: bool
    """True if a copied prefix is the same cells once more."""

    def __init__(self, cells: int, *, shared: bool = True) -> None:
        self.cells = cells
        self.shared = shared
        self._shared: dict[int, list[_Run]] = {}

    def record(self, changes: Iterable[CellChange]) -> None:
        """Follow changes in their order."""
        for change in changes:
            match change:
                case Removal(seq_id, start):
                    self._shared[seq_id] = self._first(seq_id, start)
                case Rewind(_, seq_id, tokens):
                    self._shared[seq_id] = self._first(seq_id, tokens)
                case Restore(_, seq_id, _):
                    self._shared[seq_id] = []
                case Copy(source, target, tokens) if self.shared:
                    self._share(source, target, tokens)

    def used(self, sizes: Mapping[int, int]) -> int:
        """Return the number of cells of slots that hold so many tokens, by `seq_id`."""
        runs = [run for seq_id in sizes for run in self._shared.get(seq_id, ())]
        return sum(sizes.values()) - sum(run.length for run in runs) + sum(run.length for run in set(runs))

    def _share(self, source: int, target: int, tokens: int) -> None:
        runs = self._first(source, tokens)
        if own := tokens - sum(run.length for run in runs):
            runs.append(_Run(own))
            self._shared[source] = runs
        self._shared[target] = runs.copy()

    def _first(self, seq_id: int, tokens: int) -> list[_Run]:
        """Return the shared runs among the first tokens of a slot. A run that goes on behind them is divided."""
        first: list[_Run] = []
        for run in self._shared.get(seq_id, []).copy():
            if tokens <= 0:
                break
            if run.length > tokens:
                self._divide(run, tokens)
            first.append(run)
            tokens -= run.length
        return first

    def _divide(self, run: _Run, length: int) -> None:
        """Divide a run after so many cells, in every slot that has it."""
        rest = _Run(run.length - length)
        run.length = length
        for runs in self._shared.values():
            if run in runs:
                runs.insert(runs.index(run) + 1, rest)
