"""Fake KV cache: the token of each cell, in the slots, saved, and in files."""

import json
import sys
from array import array
from collections import defaultdict
from itertools import count

from typing_extensions import override

from engine.core.kv.cache import KVCache
from engine.core.kv.cell_changes import Copy, Forget, Removal, Restore, Rewind, Save, Shift, Swap
from engine.core.kv.prefix_file import Discard, Fetch, FileRead, FileReport, Spill, SpillSlot
from engine.core.model import ModelTraits
from engine.request import AdapterSet
from engine.testing.fake_files import FakeFiles

PARTIAL_CELLS = 5
"""Size of a partial state, in cells."""


class FakeCache(KVCache):
    """Raises `RuntimeError` for a change that the model could not make."""

    def __init__(self, traits: ModelTraits, *, rewinds: bool) -> None:
        """Create an empty cache. With `rewinds` a model that cannot trim has partial states."""
        self._traits = traits
        self._rewinds = rewinds and traits.needs_checkpoints
        self._floors: dict[int, int] = {}
        self._drafted: dict[int, int] = {}
        self.cells: dict[int, list[int]] = {}
        """Resident tokens of each `seq_id`."""
        self.computed_by: defaultdict[int, AdapterSet] = defaultdict(tuple)
        """The adapters that computed the cells of each `seq_id`."""
        self._places: dict[int, list[int]] = {}
        self._place = count()
        self.saved: dict[int, list[int]] = {}
        """Tokens of the cells saved under each key."""
        self.checkpoints: dict[int, list[int]] = {}
        """Tokens before the partial state saved under each key."""
        self._saved_by: dict[int, AdapterSet] = {}
        self.room = sys.maxsize
        """Maximum number of saved cells, partial states included."""
        self.files = FakeFiles()
        """The files."""
        self._reading: set[int] = set()
        self.copied = 0
        """Total number of copied, saved and restored cells, partial states included."""

    @override
    def remove(self, removal: Removal) -> None:
        copied = self._traits.windowed and removal.start < self._floors.get(removal.seq_id, 0)
        dropped = len(self.cells.get(removal.seq_id, [])) - removal.start
        most = self._drafted.pop(removal.seq_id, 0)
        drafted = dropped == most + 1 > 1 if self._traits.drops_steps else dropped <= most
        if removal.start and (copied or not (self._traits.can_trim or drafted)):
            raise RuntimeError("this model cannot drop part of a sequence")
        if not removal.start:
            self._floors[removal.seq_id] = 0
        del self.cells.setdefault(removal.seq_id, [])[removal.start :]
        self._place_cells(removal.seq_id)

    @override
    def shift(self, shift: Shift) -> None:
        cells = self.cells.get(shift.seq_id, [])
        if shift.start < 0 or shift.count < 1 or shift.start + shift.count > len(cells):
            raise RuntimeError(f"slot {shift.seq_id} has {len(cells)} cells: too few for {shift}")
        del cells[shift.start : shift.start + shift.count]
        floor = self._floors.get(shift.seq_id, 0)
        self._floors[shift.seq_id] = max(min(floor, shift.start), floor - shift.count)

    @override
    def copy(self, copy: Copy) -> None:
        source = self.cells.get(copy.source, [])
        wrong = not 1 <= copy.tokens <= len(source) or copy.source == copy.target
        if wrong or (copy.tokens < len(source) and self._traits.needs_checkpoints):
            raise RuntimeError(f"slot {copy.source} has {len(source)} cells, not {copy.tokens} to copy")
        shared = self._traits.shares_cells
        self._places[copy.target] = self._places[copy.source][: copy.tokens] if shared else []
        self._fill(copy.target, source[: copy.tokens], self.computed_by[copy.source])
        self.copied += 0 if shared else copy.tokens

    @override
    def swap(self, swap: Swap) -> None:
        one, other = self.cells.get(swap.one, []), self.cells.get(swap.other, [])
        if not one or not other or swap.one == swap.other:
            raise RuntimeError(f"slots {swap.one} and {swap.other} have no cells to exchange")
        if self._traits.pool is not None:
            raise RuntimeError("no exchange is needed where all slots share their cells")
        by = self.computed_by
        one_by, other_by = by[swap.one], by[swap.other]
        self._fill(swap.one, other, other_by)
        self._fill(swap.other, one, one_by)
        self.copied += len(one) + len(other)

    @override
    def save(self, save: Save) -> bool:
        cells = self.cells.get(save.seq_id, [])
        if not cells or save.key in self.saved or save.key in self.checkpoints:
            raise RuntimeError(f"{len(cells)} cells of slot {save.seq_id} to save under the key {save.key}")
        if save.partial and not self._rewinds:
            raise RuntimeError("this model has no partial states")
        size = PARTIAL_CELLS if save.partial else len(cells)
        if sum(map(len, self.saved.values())) + PARTIAL_CELLS * len(self.checkpoints) + size > self.room:
            return False
        (self.checkpoints if save.partial else self.saved)[save.key] = cells.copy()
        self._saved_by[save.key] = self.computed_by[save.seq_id]
        self.copied += size
        return True

    @override
    def restore(self, restore: Restore) -> None:
        self._check_read(restore.key)
        saved = self.saved.get(restore.key, [])
        if not 1 <= restore.tokens <= len(saved) or (restore.tokens < len(saved) and self._traits.needs_checkpoints):
            raise RuntimeError(f"{len(saved)} cells are saved under {restore.key}, not {restore.tokens} to restore")
        self._places[restore.seq_id] = []
        self._fill(restore.seq_id, saved.copy(), self._saved_by[restore.key])
        self._fill(restore.seq_id, saved[: restore.tokens], self._saved_by[restore.key])
        self.copied += len(saved)

    @override
    def rewind(self, rewind: Rewind) -> None:
        self._check_read(rewind.key)
        saved, cells = self.checkpoints.get(rewind.key, []), self.cells.get(rewind.seq_id, [])
        if not saved or rewind.tokens != len(saved) or cells[: rewind.tokens] != saved:
            raise RuntimeError(f"slot {rewind.seq_id} never was where the checkpoint {rewind.key} is")
        self._fill(rewind.seq_id, saved.copy(), self._saved_by[rewind.key])
        self.copied += PARTIAL_CELLS

    @override
    def forget(self, forget: Forget) -> None:
        self.saved.pop(forget.key, None)
        self.checkpoints.pop(forget.key, None)
        self._saved_by.pop(forget.key, None)
        self._reading.discard(forget.key)

    @override
    def spill(self, spill: Spill) -> None:
        self._check_read(spill.key)
        cells = (self.checkpoints if spill.file.partial else self.saved).get(spill.key)
        self.files.write(spill.file, cells, self._saved_by.get(spill.key, ()))

    @override
    def spill_slot(self, spill: SpillSlot) -> None:
        self.files.write(spill.file, self.cells.get(spill.seq_id, []), self.computed_by[spill.seq_id])

    @override
    def fetch(self, fetch: Fetch) -> None:
        if fetch.key in self.saved or fetch.key in self.checkpoints:
            raise RuntimeError(f"cells to read under the key {fetch.key}, which has some")
        (self.checkpoints if fetch.file.partial else self.saved)[fetch.key] = fetch.file.prefix.tokens
        self._saved_by[fetch.key] = self.files.computed_by.get(fetch.file.name, ())
        self._reading.add(fetch.key)
        self.files.read(fetch.file, fetch.key)

    @override
    def discard(self, discard: Discard) -> None:
        self.files.delete(discard.name)

    def take_reports(self) -> list[FileReport]:
        """Return what became of files. From now on the cells that were read can be used."""
        reports = self.files.take_reports()
        for report in reports:
            if isinstance(report, FileRead) and report.found:
                self._reading.discard(report.key)
        return reports

    @override
    def read(self, seq_id: int) -> bytes:
        adapters = json.dumps(self.computed_by.get(seq_id, ()))
        return array("i", self.cells[seq_id]).tobytes() + adapters.encode()

    @override
    def write(self, seq_id: int, cells: bytes, tokens: int) -> bool:
        if self.cells.get(seq_id):
            raise RuntimeError(f"slot {seq_id} is not empty")
        size = tokens * array("i").itemsize
        try:
            adapters = tuple((id_, scale) for id_, scale in json.loads(cells[size:]))
        except ValueError:
            return False
        self._places[seq_id] = []
        self._fill(seq_id, array("i", cells[:size]).tolist(), adapters)
        self._floors[seq_id] = tokens
        return True

    def compute(self, seq_id: int, tokens: list[int], adapters: AdapterSet, *, drafted: int) -> list[int]:
        """Append the cells of a step to those of a slot, the last ones of draft tokens. Return all of them."""
        cells = self.cells.setdefault(seq_id, [])
        cells += tokens
        self.computed_by[seq_id], self._drafted[seq_id] = adapters, drafted
        self._place_cells(seq_id)
        return cells

    def _fill(self, seq_id: int, cells: list[int], adapters: AdapterSet) -> None:
        """Replace the cells of a slot by copied ones, which were computed with these adapters."""
        self.cells[seq_id] = cells
        self.computed_by[seq_id] = adapters
        self._floors[seq_id] = len(cells)
        self._drafted[seq_id] = 0
        self._place_cells(seq_id)

    def _place_cells(self, seq_id: int) -> None:
        """Give each cell of a slot that has none a place of its own in the pool.

        Raises:
            RuntimeError: the pool has no room for them.
        """
        places, size = self._places.setdefault(seq_id, []), len(self.cells[seq_id])
        del places[size:]
        places += (next(self._place) for _ in range(size - len(places)))
        pool = self._traits.pool
        if pool is not None and (used := len(set().union(*self._places.values()))) > pool:
            raise RuntimeError(f"{used} cells in a pool of {pool}")

    def _check_read(self, key: int) -> None:
        if key in self._reading:
            raise RuntimeError(f"the cells under the key {key} are still being read")
