"""Moves prefixes between the slots or host memory, and files."""

from collections.abc import Iterable, Iterator
from itertools import chain

from engine.core.kv.cell_changes import CellChange
from engine.core.kv.prefix import Prefix, StoredPrefix
from engine.core.kv.prefix_file import (
    Discard,
    FileChange,
    FileGone,
    FileRead,
    FileReport,
    FileWritten,
    PrefixFile,
    Spill,
    SpillSlot,
    file_for,
)
from engine.core.kv.prefix_files import PrefixFiles
from engine.core.kv.prefix_store import PrefixStore
from engine.core.kv.slot import Slot
from engine.core.model import ModelTraits


class DiskTier:
    """Decides what is written to files and read from them.

    Cells are written when they are saved to host memory, and when the engine is idle. A file that is read becomes an
    entry of the store, so that its cells are reused like others.

    Where the directory has no room for all slots, an idle engine would write one after another for ever, each in place
    of another one. So it writes no more once files were removed, until `resume`.
    """

    def __init__(self, store: PrefixStore, files: PrefixFiles, traits: ModelTraits) -> None:
        self._store = store
        self._files = files
        self._traits = traits
        self._full = False

    def spill_saved(self) -> Iterator[FileChange]:
        """Write the cells that were saved last, with their checkpoints, if they are worth it."""
        stored = self._store.newest
        if self._files.is_worth_writing(stored.prefix):
            yield from self._spill(stored)
            yield from self._spill_checkpoints(stored.prefix)

    def spill_idle(self, slots: Iterable[Slot]) -> Iterator[FileChange]:
        """Write the cached cells of one slot, with their checkpoints, if any are worth it and no write is under way."""
        if self._files.writing or self._full:
            return
        by_use = sorted((slot for slot in slots if slot.cached), key=lambda slot: -slot.used)
        slot = next((slot for slot in by_use if self._files.is_worth_writing(slot.prefix)), None)
        if slot and slot.partition is not None:
            file = file_for(slot.prefix, self._store.bytes_of(slot.size))
            self._files.begin(file)
            yield SpillSlot(file, slot.seq_id)
            yield from self._spill_checkpoints(slot.prefix)

    def resume(self) -> None:
        """Write again while the engine is idle, because a sequence starts."""
        self._full = False

    def fetch(self, slots: Iterable[Slot], wanted: Prefix, have: int) -> list[CellChange]:
        """Read files that give many more reusable cells than those in memory. Return the changes, evictions first."""
        sources: list[Slot | StoredPrefix | PrefixFile] = [*slots, *self._store.find(wanted), *self._files.find(wanted)]
        candidates = [self._reusable(source, wanted) for source in sources]
        tokens, files = max(candidates, key=lambda one: (one[0], -len(one[1])), default=(0, []))
        size = sum(file.bytes for file in files)
        if not files or not self._store.fits(size) or not self._traits.copy_pays(files[0].size, tokens - have):
            return []
        if not self._files.is_worth_reading(size, tokens - have):
            return []
        return list(chain.from_iterable(map(self._store.fetch, files)))

    def record(self, report: FileReport) -> list[CellChange]:
        """Record what became of a file. Return the changes that follow from it."""
        match report:
            case FileWritten(file, removed):
                self._full = self._full or bool(removed)
                for name in removed:
                    self._files.remove(name)
                return [self._discard(name) for name in self._files.add(file)]
            case FileGone(name):
                self._files.remove(name)
            case FileRead(key, found, size, seconds):
                self._files.observe_read(size, seconds)
                return [*self._store.end_read(key, found=found)]
        return []

    def observe_prompt(self, tokens: int, seconds: float) -> None:
        """Record the duration of a prompt step, with which reading is compared."""
        self._files.observe_prompt(tokens, seconds)

    def _reusable(self, source: Slot | StoredPrefix | PrefixFile, wanted: Prefix) -> tuple[int, list[PrefixFile]]:
        """Return how many cells of a source can be reused, and the files to read for them."""
        shared = source.prefix.common(wanted)
        own = [source] if isinstance(source, PrefixFile) else []
        if shared == source.size or not self._traits.needs_checkpoints:
            return shared, own
        within = Prefix(wanted.tokens, shared, wanted.partition)
        held, filed = self._store.find_checkpoint(within), self._files.find_checkpoint(within)
        if filed and (held is None or held.size < filed.size):
            return filed.size, [*own, filed]
        return (held.size, own) if held else (0, [])

    def _spill_checkpoints(self, prefix: Prefix) -> Iterator[FileChange]:
        for checkpoint in self._store.last_checkpoints(prefix) if self._traits.needs_checkpoints else ():
            if self._store.is_saved(checkpoint):
                yield from self._spill(checkpoint)

    def _spill(self, stored: StoredPrefix) -> Iterator[Spill]:
        file = file_for(stored.prefix, stored.bytes, partial=stored.partial)
        if file.name not in self._files:
            self._files.begin(file)
            yield Spill(file, stored.key)

    def _discard(self, name: str) -> Discard:
        self._files.remove(name)
        return Discard(name)
