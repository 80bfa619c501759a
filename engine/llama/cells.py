"""The cells of all slots, and the states that were saved of them in host memory."""

import logging

import numpy as np

from engine.core.kv.cell_changes import Copy, Forget, Restore, Rewind, Save, Swap
from engine.errors import EngineFault
from engine.llama.context import LlamaContext
from engine.llama.model import LlamaModel
from engine.llama.state import State, StateMemory, read_state, write_state

logger = logging.getLogger(__name__)


class SlotCells:
    """Copies cells between slots and host memory, and holds the saved ones."""

    def __init__(self, context: LlamaContext, model: LlamaModel) -> None:
        """Start without saved cells. `context` must outlive this object."""
        self._context = context
        self._model = model
        self._memory = StateMemory()
        self.saved: dict[int, State] = {}
        """The saved states by their keys."""

    def close(self) -> None:
        """Free all saved cells. Repeatable."""
        self.saved.clear()
        self._memory.close()

    def copy(self, copy: Copy) -> None:
        """Share the cells in a unified cache. Otherwise copy them through host memory, which costs by the source.

        There `llama_memory_seq_cp` would copy the full size of a slot.
        """
        if self._model.traits.pool is not None:
            self._context.share(copy.source, copy.target, copy.tokens if self._model.traits.can_trim else -1)
            return
        self._fill(copy.target, read_state(self._context.handle, copy.source), copy.tokens)

    def swap(self, swap: Swap) -> None:
        """Exchange the cells of two slots through host memory."""
        context = self._context.handle
        one, other = read_state(context, swap.one), read_state(context, swap.other)
        write_state(context, swap.one, other)
        write_state(context, swap.other, one)

    def save(self, save: Save) -> bool:
        """Copy the cells of a slot, or its partial state. Return whether there was memory for them."""
        try:
            state = read_state(self._context.handle, save.seq_id, self._memory.take, partial=save.partial)
        except (OSError, EngineFault) as error:  # the cells did not change
            logger.warning("a prefix cannot be saved, and will be computed again: %s", error)
            return False
        self.saved[save.key] = state
        return True

    def restore(self, restore: Restore) -> None:
        """Copy saved cells to a slot."""
        self._fill(restore.seq_id, self.saved[restore.key], restore.tokens)

    def rewind(self, rewind: Rewind) -> None:
        """Replace the recurrent state, or the cells of the windows; then the other cells can be dropped."""
        write_state(self._context.handle, rewind.seq_id, self.saved[rewind.key], partial=True)
        self._context.remove(rewind.seq_id, rewind.tokens)

    def forget(self, forget: Forget) -> None:
        """Free saved cells."""
        self.saved.pop(forget.key, None)

    def read(self, seq_id: int) -> bytes:
        """Return the cells of a slot."""
        return read_state(self._context.handle, seq_id).tobytes()

    def write(self, seq_id: int, cells: bytes, tokens: int) -> bool:
        """Fill an empty slot with so many cells. Return whether they fit."""
        try:
            write_state(self._context.handle, seq_id, np.frombuffer(cells, np.uint8))
        except EngineFault:
            fits = False
        else:
            fits = self._context.end_of(seq_id) == tokens
        if not fits:
            self._context.remove(seq_id, 0)
        return fits

    def _fill(self, seq_id: int, state: State, tokens: int) -> None:
        """Replace the cells of a slot by the first `tokens` of a state."""
        write_state(self._context.handle, seq_id, state)
        if self._model.traits.can_trim:
            self._context.remove(seq_id, tokens)
