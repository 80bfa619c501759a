"""Idle rows: placeholder tokens in slots that have no row in a step, so that the others share a weight pass."""

from bisect import bisect_left
from itertools import pairwise
from typing import TypeAlias

from engine.core.step import Chunk
from engine.llama.context import LlamaContext
from engine.llama.model import LlamaModel

IdleRow: TypeAlias = tuple[int, int]
"""A slot, and the position behind its cells."""


class IdleRows:
    """Adds idle rows to decode steps, and drops their cells.

    llama.cpp computes neighbouring slots with equally many rows in one pass over the weights, and needs another pass
    for each gap. On a device a row takes little of the time of a pass, and a move of cells to another slot goes through
    host memory.
    """

    def __init__(self, context: LlamaContext, model: LlamaModel) -> None:
        """Use the slots of a context of a model."""
        self._context = context
        self._model = model

    def bridge(self, before: int, after: int, rows: int = 1) -> bool:
        """Return whether the slots between two others can have so many idle rows each, and these take little time."""
        ends = [self._context.end_of(slot) for slot in range(before + 1, after)]
        room = all(end + rows <= self._model.info.context for end in ends)
        return room and self._model.traits.bridges(rows * len(ends), sum(ends))

    def between(self, chunks: tuple[Chunk, ...]) -> list[IdleRow]:
        """Return the idle rows of a decode step: as many in each gap slot as each chunk has."""
        rows = chunks[0].rows
        if chunks[-1].seq_id - chunks[0].seq_id < len(chunks) or any(chunk.rows != rows for chunk in chunks):
            return []
        gaps = pairwise(chunk.seq_id for chunk in chunks)
        bridged = (range(a + 1, b) for a, b in gaps if self.bridge(a, b, rows))
        return [(slot, self._context.end_of(slot)) for gap in bridged for slot in gap]

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
