"""Idle rows: tokens in slots without a row, computed so that the slots around them share a weight pass."""

from bisect import bisect_left
from collections.abc import Sequence as Rows
from itertools import pairwise
from typing import TypeAlias

from engine.core.step import Chunk
from engine.llama.context import LlamaContext

IdleRow: TypeAlias = tuple[int, int]
"""A slot, and the position behind its cells."""


class IdleRows:
    """Adds idle rows to decode steps, and drops their cells.

    llama.cpp computes rows of neighbouring slots in one pass over the weights, and needs another pass for each gap. On
    a device a row takes little of the time of a pass, and a move of cells to another slot goes through host memory.
    """

    def __init__(self, context: LlamaContext, size: int, most: int) -> None:
        """Use the slots of a context.

        Args:
            context: the context.
            size: tokens that a slot has room for.
            most: maximum number of idle rows between two rows.
        """
        self._context = context
        self._size = size
        self._most = most

    def bridge(self, before: int, after: int) -> bool:
        """Return whether all slots between two others can have an idle row."""
        between = range(before + 1, after)
        return len(between) <= self._most and all(self._context.end_of(slot) < self._size for slot in between)

    def of(self, chunks: Rows[Chunk]) -> list[IdleRow]:
        """Return the idle rows between the rows of a decode step, whose slots are in ascending order."""
        if chunks[-1].seq_id - chunks[0].seq_id < len(chunks):
            return []
        gaps = pairwise(chunk.seq_id for chunk in chunks)
        return [(slot, self._context.end_of(slot)) for a, b in gaps for slot in range(a + 1, b)]

    def drop(self, rows: list[IdleRow]) -> None:
        """Drop the cells of idle rows after their step."""
        for slot, position in rows:
            self._context.remove(slot, position)


def insert(
    rows: list[IdleRow], tokens: list[int], seq_ids: list[int], positions: list[int], outputs: list[bool]
) -> None:
    """Insert idle rows into the rows of a step, in ascending order of their slots."""
    for slot, position in rows:
        at = bisect_left(seq_ids, slot)
        tokens.insert(at, 0)
        seq_ids.insert(at, slot)
        positions.insert(at, position)
        outputs.insert(at, False)
