"""Cells of free slots as bytes: read, written and erased by the step thread between two steps."""

from dataclasses import dataclass

from engine.core.changes import carry_out
from engine.core.kv.ledger import KVLedger
from engine.core.kv.prefix import Prefix
from engine.core.kv.slot import Slot
from engine.core.step import Runner
from engine.errors import EngineError, RequestError


@dataclass(frozen=True, slots=True)
class SlotState:
    """Tokens of a slot, and their cells."""

    tokens: tuple[int, ...]
    """The tokens."""
    cells: bytes
    """The cells, in llama.cpp's format."""


class SlotStates:
    """Reads and changes free slots.

    Each slot belongs to a cache partition, so that no client sees the prompt of another one. `partition` is that of the
    client. Called under the lock of the step loop; all but `is_free` by the step thread, between two steps.
    """

    def __init__(self, ledger: KVLedger, runner: Runner, vocabulary: int) -> None:
        self._ledger = ledger
        self._runner = runner
        self._vocabulary = vocabulary
        self.slots = len(ledger.slots)
        """Number of slots."""

    def is_free(self, seq_id: int) -> bool:
        """Return whether the other methods may be called: no sequence holds the slot, or there is no such slot."""
        return not 0 <= seq_id < self.slots or self._ledger.slots[seq_id].holder is None

    def read(self, seq_id: int, partition: str) -> SlotState:
        """Return the tokens and the cells of a slot. The cost grows with the cells.

        Raises:
            RequestError: There is no such slot, or it belongs to another client.
        """
        slot = self._find(seq_id, partition)
        self._apply()
        return SlotState(tuple(slot.cached), self._runner.cache.read(seq_id) if slot.cached else b"")

    def write(self, seq_id: int, partition: str, state: SlotState) -> int:
        """Replace the cells of a slot, and return their number. The cost grows with the cells.

        Raises:
            RequestError: There is no such slot, it belongs to another client, there is no room, or the state is not of
                this model.
        """
        slot, tokens = self._find(seq_id, partition), list(state.tokens)
        if not all(0 <= token < self._vocabulary for token in tokens):
            raise RequestError("the file is of another model", code="invalid_file", param="filename")
        self._ledger.vacate(slot)
        if not self._ledger.make_room(len(tokens)):
            raise RequestError("the KV cache has no room for this prompt", code="no_room", param="filename")
        self._apply()
        if tokens:
            if not self._runner.cache.write(seq_id, state.cells, len(tokens)):
                raise RequestError("the file does not fit this model", code="invalid_file", param="filename")
            self._ledger.fill(slot, Prefix(tokens, len(tokens), partition))
        return len(tokens)

    def erase(self, seq_id: int, partition: str) -> int:
        """Drop the cells of a slot, and what begins alike in host memory. Return the number of its cells.

        Raises:
            RequestError: There is no such slot, or it belongs to another client.
        """
        slot = self._find(seq_id, partition)
        erased = slot.size
        self._ledger.erase(slot)
        self._apply()
        return erased

    def _find(self, seq_id: int, partition: str) -> Slot:
        """Return a slot.

        Raises:
            RequestError: There is no such slot, or its cells belong to another partition.
        """
        if not 0 <= seq_id < self.slots:
            raise RequestError("Invalid slot ID", code="invalid_value", param="id_slot")
        slot = self._ledger.slots[seq_id]
        if slot.cached and slot.partition != partition:
            message = "the slot has a prompt of another client, or one with other LoRA adapters"
            raise RequestError(message, code="foreign_slot", param="id_slot")
        return slot

    def _apply(self) -> None:
        """Make the changes that the ledger has recorded, those of other requests included.

        Raises:
            RuntimeError: One failed. The cells are not what the ledger says, and the process must end.
        """
        try:
            unsaved = carry_out(self._ledger.take_changes(), self._runner)
        except (EngineError, MemoryError) as error:
            raise RuntimeError("cells of slots could not be changed") from error
        for key in unsaved:
            self._ledger.store.drop_unsaved(key)
