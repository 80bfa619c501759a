"""Keeps neighbours what one pass computes together, by moving sequences between slots."""

from itertools import accumulate, pairwise
from typing import TypeAlias

from engine.core.kv.ledger import COPIED_AT_ONCE, KVLedger, Slot
from engine.core.sequence import Sequence

_EACH_MOVE = 16
"""Cells. A move costs about as many more than those it moves."""

Move: TypeAlias = tuple[Slot, Slot]


class Compactor:
    """Closes the gaps between rows: each run of neighbouring slots costs a weight pass, a move costs by its cells.

    How long a gap would stay open is not known. So rows move once the weight passes that gaps have cost, those of the
    coming step included, would have paid for it: at most twice the cost of the best choice (the ski-rental rule).
    """

    def __init__(self, ledger: KVLedger) -> None:
        self._ledger = ledger
        self._spent = 0

    def gather(self, rows: list[Sequence]) -> None:
        """Move what is worth it of the rows of the coming pass, which stand in ascending order of their slots."""
        gaps = sum(b.seq_id - a.seq_id > 1 for a, b in pairwise(rows))
        if not gaps:
            self._spent = 0
            return
        self._spent += gaps * self._ledger.traits.cells_per_weight_pass
        moves = self._cheapest({row.seq_id for row in rows})
        if _total(moves) <= self._spent:
            self._carry_out(moves)

    def _cheapest(self, rows: set[int]) -> list[Move]:
        """What brings all rows into as many neighbouring slots as there are rows, out of all that could.

        A row that is there already saves its own move; whatever else is there has to make room.
        """
        slots = self._ledger.slots
        costs = (-_EACH_MOVE - slot.size if slot.seq_id in rows else slot.size for slot in slots)
        before = list(accumulate(costs, initial=0))
        starts = range(len(slots) - len(rows) + 1)
        return _moves(slots, rows, min(starts, key=lambda start: before[start + len(rows)] - before[start]))

    def _carry_out(self, moves: list[Move]) -> None:
        moved = 0
        for source, target in moves:
            if moved >= COPIED_AT_ONCE:
                break
            moved += _cost((source, target))
            self._ledger.move(source, target)
        self._spent -= moved


def _moves(slots: list[Slot], rows: set[int], start: int) -> list[Move]:
    """Those that bring all rows into the slots from `start` on."""
    stop = start + len(rows)
    outside = [slots[row] for row in sorted(rows) if not start <= row < stop]
    inside = [slot for slot in slots[start:stop] if slot.seq_id not in rows]
    return list(zip(outside, inside, strict=True))


def _total(moves: list[Move]) -> int:
    return sum(map(_cost, moves))


def _cost(move: Move) -> int:
    """In cells: those of the row, and those it puts out of their place."""
    source, target = move
    return _EACH_MOVE + source.size + target.size
