"""Contents of free slots as clients name them: to save them, to put back what was saved, and to erase them."""

from collections.abc import Sequence

from engine.core.kv.cell_changes import CellChange
from engine.core.kv.ledger import KVLedger
from engine.core.kv.prefix import Prefix
from engine.core.kv.slot import Slot
from engine.errors import RequestError


class SlotContents:
    """Free slots by their ids. Each belongs to a cache partition, so that no client sees the prompt of another one."""

    def __init__(self, ledger: KVLedger) -> None:
        self._ledger = ledger

    def find(self, seq_id: int, partition: str) -> Slot | None:
        """Return a slot, or None while a sequence holds it.

        Raises:
            RequestError: There is no such slot, or its cells belong to another partition.
        """
        if not 0 <= seq_id < len(self._ledger.slots):
            raise RequestError("Invalid slot ID", code="invalid_value", param="id_slot")
        slot = self._ledger.slots[seq_id]
        if slot.holder is not None or slot.leaving is not None:
            return None
        if slot.cached and slot.partition != partition:
            message = "the slot has a prompt of another client, or one with LoRA adapters"
            raise RequestError(message, code="foreign_slot", param="id_slot")
        return slot

    def erase(self, slot: Slot) -> int:
        """Drop the cells of a slot, and what begins alike in host memory. Return the number of its cells."""
        erased = slot.size
        self._ledger.erase(slot)
        return erased

    def make_room(self, slot: Slot, tokens: int) -> None:
        """Drop the cells of a slot, so that there is room for so many tokens.

        Raises:
            RequestError: There is no such room.
        """
        self._ledger.vacate(slot)
        if not self._ledger.make_room(tokens):
            raise RequestError("the KV cache has no room for this prompt", code="no_room", param="filename")

    def fill(self, slot: Slot, tokens: Sequence[int], partition: str) -> None:
        """Record the cells that the runner has put into a slot."""
        self._ledger.fill(slot, Prefix(list(tokens), len(tokens), partition))

    def take_changes(self) -> tuple[CellChange, ...]:
        """Return the changes of cells to apply now, in order."""
        return self._ledger.take_changes()

    def drop_unsaved(self, key: int) -> None:
        """Remove a prefix that the runner could not save."""
        self._ledger.store.drop_unsaved(key)
