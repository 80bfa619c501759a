"""Moves sequences between slots so that the rows of a step are neighbours."""

from collections import Counter
from itertools import accumulate, pairwise
from typing import TypeAlias

from engine.core.kv.ledger import COPIED_AT_ONCE, KVLedger
from engine.core.kv.slot import Slot
from engine.core.sequence import Sequence
from engine.request import AdapterSet

_EACH_MOVE = 16
"""Cells. Fixed cost of a move, in moved cells."""

Move: TypeAlias = tuple[Slot, Slot]


class Compactor:
    """Closes gaps between rows. Each run of neighbouring slots takes a weight pass; a move costs by the cells it moves.

    It is unknown how long a gap would stay open. So rows move once the weight passes that gaps have cost, including
    those of the next step, would have paid for the move. That is at most twice the optimal cost (the ski-rental rule).
    """

    def __init__(self, ledger: KVLedger, *, bridges: bool = False) -> None:
        """Start without costs. With `bridges` idle rows fill gaps, so that these need no weight pass."""
        self._ledger = ledger
        self._bridges = bridges
        self._spent = Counter[AdapterSet]()

    def gather(self, rows: list[Sequence]) -> None:
        """Close gaps in the rows of the next step where that pays. `rows` are in ascending order of their slots.

        The gaps of each set of adapters are counted for themselves, because sets take turns.
        """
        adapters = rows[0].adapters
        spent = self._spent.pop(adapters, 0)
        if rows[-1].seq_id - rows[0].seq_id < len(rows):
            return
        gaps = sum(self._is_gap(a.seq_id + 1, b.seq_id) for a, b in pairwise(rows))
        if not gaps:
            return
        holders = (slot.holder for slot in self._ledger.slots)
        if any(holder and holder.request.slot is not None for holder in holders):  # it keeps the slot that it names
            return
        if len(self._spent) >= len(self._ledger.slots):  # some of these sets have no sequence any more
            self._spent.clear()
        spent += gaps * self._ledger.traits.cells_per_weight_pass
        moves = self._cheapest({row.seq_id for row in rows})
        self._spent[adapters] = spent - self._carry_out(moves) if sum(map(_cost, moves)) <= spent else spent

    def _is_gap(self, start: int, stop: int) -> bool:
        """Return whether the slots between two rows cost a weight pass."""
        between = self._ledger.slots[start:stop]
        bridged = self._bridges and self._ledger.traits.bridges(len(between), sum(slot.size for slot in between))
        return bool(between) and not bridged

    def _cheapest(self, rows: set[int]) -> list[Move]:
        """Return the cheapest moves that bring all rows into neighbouring slots.

        A row that is there already saves its own move; any other content has to make room.
        """
        slots = self._ledger.slots
        costs = (-_EACH_MOVE - slot.size if slot.seq_id in rows else slot.size for slot in slots)
        before = list(accumulate(costs, initial=0))
        starts = range(len(slots) - len(rows) + 1)
        return _moves(slots, rows, min(starts, key=lambda start: before[start + len(rows)] - before[start]))

    def _carry_out(self, moves: list[Move]) -> int:
        """Make the moves that may be made before one step. Return their cost."""
        moved = 0
        for source, target in moves:
            if moved >= COPIED_AT_ONCE:
                break
            moved += _cost((source, target))
            self._ledger.move(source, target)
        return moved


def _moves(slots: list[Slot], rows: set[int], start: int) -> list[Move]:
    """Return the moves that bring all rows into the slots from `start` on."""
    stop = start + len(rows)
    outside = [slots[row] for row in sorted(rows) if not start <= row < stop]
    inside = [slot for slot in slots[start:stop] if slot.seq_id not in rows]
    return list(zip(outside, inside, strict=True))


def _cost(move: Move) -> int:
    """Return the cost in cells: those of the row, and those that it displaces."""
    source, target = move
    return _EACH_MOVE + source.size + target.size
