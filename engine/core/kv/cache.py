"""The KV cache: the contract between the ledger, which decides, and the owner of the cells, which changes them."""

from typing import Protocol

from engine.core.kv.cell_changes import Copy, Forget, Removal, Restore, Rewind, Save, Shift, Swap
from engine.core.kv.prefix_file import Discard, Fetch, Spill, SpillSlot


class KVCache(Protocol):
    """Applies changes of cells between two steps."""

    def remove(self, removal: Removal) -> None:
        """Drop cells. Fast.

        Raises:
            EngineFault: the model cannot drop a part of a sequence.
        """

    def shift(self, shift: Shift) -> None:
        """Discard cells in the middle. The cost grows with the cells of all slots.

        Raises:
            EngineFault: the model cannot do it, or the computation failed.
        """

    def copy(self, copy: Copy) -> None:
        """Copy one or more cells. The cost grows with the cells of the source.

        Raises:
            EngineFault: the copy failed.
        """

    def swap(self, swap: Swap) -> None:
        """Exchange the cells of two slots. The cost grows with the cells of both.

        Raises:
            EngineFault: the exchange failed.
        """

    def save(self, save: Save) -> bool:
        """Copy cells to host memory. Return whether there was memory for them. The cost grows with the cells."""

    def restore(self, restore: Restore) -> None:
        """Copy saved cells to a slot. The cost grows with all cells saved under the key.

        Raises:
            EngineFault: the copy failed.
        """

    def rewind(self, rewind: Rewind) -> None:
        """Roll a slot back. The cost is that of the partial state.

        Raises:
            EngineFault: the model cannot do it.
        """

    def forget(self, forget: Forget) -> None:
        """Free saved cells. Fast."""

    def spill(self, spill: Spill) -> None:
        """Write saved cells to a file in the background, and report `FileWritten` or `FileGone`. Fast."""

    def spill_slot(self, spill: SpillSlot) -> None:
        """Write the cells of a slot to a file in the background, and report as `spill`. The cost is that of `save`."""

    def fetch(self, fetch: Fetch) -> None:
        """Read a file in the background, and report `FileRead`. Fast."""

    def discard(self, discard: Discard) -> None:
        """Delete a file in the background. Fast."""

    def read(self, seq_id: int) -> bytes:
        """Return the cells of a slot, which keeps them. The cost grows with the cells.

        Raises:
            EngineFault: the copy failed.
        """

    def write(self, seq_id: int, cells: bytes, tokens: int) -> bool:
        """Put so many cells, as `read` returned them, into an empty slot. The cost grows with the cells.

        Return False if they do not fit. Then the slot is still empty.
        """
