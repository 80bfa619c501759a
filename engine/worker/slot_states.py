"""Cells of free slots as bytes: read, written and erased by the step thread between two steps."""

from dataclasses import dataclass

from engine.core.changes import carry_out
from engine.core.kv.slot_contents import SlotContents
from engine.core.step import Runner
from engine.errors import RequestError


@dataclass(frozen=True, slots=True)
class SlotState:
    """Tokens of a slot, and their cells."""

    tokens: tuple[int, ...]
    """The tokens."""
    cells: bytes
    """The cells, in llama.cpp's format."""


class SlotStates:
    """Reads and changes free slots. Every method returns None while a sequence holds the slot.

    It is for the step thread, under the lock of the step loop. `partition` is that of the client.
    """

    def __init__(self, contents: SlotContents, runner: Runner, vocabulary: int) -> None:
        self._contents = contents
        self._runner = runner
        self._vocabulary = vocabulary

    def read(self, seq_id: int, partition: str) -> SlotState | None:
        """Return the tokens and the cells of a slot. The cost grows with the cells.

        Raises:
            RequestError: There is no such slot, or it belongs to another client.
        """
        slot = self._contents.find(seq_id, partition)
        if slot is None:
            return None
        self._apply()
        return SlotState(tuple(slot.cached), self._runner.cache.read(seq_id) if slot.cached else b"")

    def write(self, seq_id: int, partition: str, state: SlotState) -> int | None:
        """Replace the cells of a slot, and return their number. The cost grows with the cells.

        Raises:
            RequestError: There is no such slot, it belongs to another client, or the state is not of this model.
        """
        slot = self._contents.find(seq_id, partition)
        if slot is None:
            return None
        if not all(0 <= token < self._vocabulary for token in state.tokens):
            raise RequestError("the file is of another model", code="invalid_file", param="filename")
        self._contents.make_room(slot, len(state.tokens))
        self._apply()
        if state.tokens:
            if not self._runner.cache.write(seq_id, state.cells, len(state.tokens)):
                raise RequestError("the file does not fit this model", code="invalid_file", param="filename")
            self._contents.fill(slot, state.tokens, partition)
        return len(state.tokens)

    def erase(self, seq_id: int, partition: str) -> int | None:
        """Drop the cells of a slot, and return their number.

        Raises:
            RequestError: There is no such slot, or it belongs to another client.
        """
        slot = self._contents.find(seq_id, partition)
        if slot is None:
            return None
        erased = self._contents.erase(slot)
        self._apply()
        return erased

    def _apply(self) -> None:
        for key in carry_out(self._contents.take_changes(), self._runner):
            self._contents.drop_unsaved(key)
