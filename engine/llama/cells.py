"""The cells of all slots, and the states that were saved of them in host memory."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from typing_extensions import override

from engine.core.kv.cache import KVCache
from engine.core.kv.cell_changes import Copy, Forget, Removal, Restore, Rewind, Save, Shift, Swap
from engine.core.kv.prefix_file import Discard, Fetch, Spill, SpillSlot
from engine.errors import EngineFault
from engine.llama.batch import Batch
from engine.llama.context import LlamaContext
from engine.llama.model import LlamaModel
from engine.llama.state import State, StateMemory, fresh, read_state, write_state
from engine.prefix_files.service import PendingState, PrefixFileService

logger = logging.getLogger(__name__)

_DELETE_SECONDS = 1.0


class SlotCells(KVCache):
    """Copies cells between slots and host memory, and holds the saved ones."""

    def __init__(self, context: LlamaContext, model: LlamaModel, files: PrefixFileService | None, batch: Batch) -> None:
        """Start without saved cells. `context` must outlive this object.

        Args:
            context: the context with the slots.
            model: its model.
            files: the prefixes on disk; without them no change names a file.
            batch: room for a token, in which a shift is computed.
        """
        self._context = context
        self._batch = batch
        self._model = model
        self._files = files
        self._memory = StateMemory()
        self._step_memory = self._before_step = fresh(0)
        self._read: dict[int, tuple[str, PendingState]] = {}
        self.saved: dict[int, State] = {}
        """The saved states by their keys."""

    def close(self) -> None:
        """Free all saved cells. Repeatable."""
        self.saved.clear()
        self._read.clear()
        self._memory.close()

    def keep(self, seq_id: int) -> None:
        """Copy the partial state of a slot before a step, which `remove` can then drop. One slot at a time."""
        self._before_step = read_state(self._context.handle, seq_id, self._take_step_memory, partial=True)

    @override
    def remove(self, removal: Removal) -> None:
        if removal.start and self._model.traits.drops_steps:
            write_state(self._context.handle, removal.seq_id, self._before_step, partial=True)
        self._context.remove(removal.seq_id, removal.start)

    @override
    def shift(self, shift: Shift) -> None:
        self._context.shift(shift.seq_id, shift.start, shift.count, self._batch)

    @override
    def copy(self, copy: Copy) -> None:
        """Share the cells in a unified cache. Otherwise copy them through host memory, which costs by the source.

        There `llama_memory_seq_cp` would copy the full size of a slot.
        """
        if self._model.traits.shares_cells:
            self._context.share(copy.source, copy.target, copy.tokens if self._model.traits.can_trim else -1)
            return
        self._fill(copy.target, read_state(self._context.handle, copy.source), copy.tokens)

    @override
    def swap(self, swap: Swap) -> None:
        """Exchange the cells of two slots through host memory."""
        context = self._context.handle
        one, other = read_state(context, swap.one), read_state(context, swap.other)
        write_state(context, swap.one, other)
        write_state(context, swap.other, one)

    @override
    def save(self, save: Save) -> bool:
        try:
            state = read_state(self._context.handle, save.seq_id, self._memory.take, partial=save.partial)
        except (OSError, EngineFault) as error:  # the cells did not change
            logger.warning("a prefix cannot be saved, and will be computed again: %s", error)
            return False
        self.saved[save.key] = state
        return True

    @override
    def restore(self, restore: Restore) -> None:
        with self._discarding(restore.key):
            self._fill(restore.seq_id, self._state(restore.key), restore.tokens)

    @override
    def rewind(self, rewind: Rewind) -> None:
        """Replace the recurrent state, or the cells of the windows; then the other cells can be dropped."""
        with self._discarding(rewind.key):
            write_state(self._context.handle, rewind.seq_id, self._state(rewind.key), partial=True)
        self._context.remove(rewind.seq_id, rewind.tokens)

    @override
    def forget(self, forget: Forget) -> None:
        self.saved.pop(forget.key, None)
        self._read.pop(forget.key, None)

    @override
    def spill(self, spill: Spill) -> None:
        self._service.write(spill.file, self.saved.get(spill.key))

    @override
    def spill_slot(self, spill: SpillSlot) -> None:
        try:
            state = read_state(self._context.handle, spill.seq_id)
        except (MemoryError, EngineFault) as error:  # the cells did not change
            logger.warning("a prefix cannot be written: %s", error)
            self._service.write(spill.file, None)
        else:
            self._service.write(spill.file, state)

    @override
    def fetch(self, fetch: Fetch) -> None:
        self._read[fetch.key] = fetch.file.name, self._service.read(fetch.file, fetch.key)

    @override
    def discard(self, discard: Discard) -> None:
        self._service.delete(discard.name)

    @override
    def read(self, seq_id: int) -> bytes:
        return read_state(self._context.handle, seq_id).tobytes()

    @override
    def write(self, seq_id: int, cells: bytes, tokens: int) -> bool:
        try:
            write_state(self._context.handle, seq_id, np.frombuffer(cells, np.uint8))
        except EngineFault:
            fits = False
        else:
            fits = self._context.end_of(seq_id) == tokens
        if not fits:
            self._context.remove(seq_id, 0)
        return fits

    @property
    def _service(self) -> PrefixFileService:
        if self._files is None:
            raise RuntimeError("there is no directory of prefixes")
        return self._files

    def _state(self, key: int) -> State:
        """Return saved cells. Those that were read from a file are there once the read was reported."""
        if key in self._read:
            self.saved[key] = self._read[key][1].result()
        return self.saved[key]

    def _take_step_memory(self, size: int) -> State:
        """Return the same memory each time: the first use of a page takes longer than the copy to it."""
        if len(self._step_memory) < size:
            self._step_memory = fresh(size)
        return self._step_memory[:size]

    @contextmanager
    def _discarding(self, key: int) -> Iterator[None]:
        """Delete the file of cells that llama.cpp refuses, so that the next engine does not fail by it, too."""
        try:
            yield
        except EngineFault:
            if key in self._read:
                self._service.delete(self._read[key][0])
                self._service.flush(_DELETE_SECONDS)
            raise

    def _fill(self, seq_id: int, state: State, tokens: int) -> None:
        """Replace the cells of a slot by the first `tokens` of a state."""
        write_state(self._context.handle, seq_id, state)
        if self._model.traits.can_trim:
            self._context.remove(seq_id, tokens)
