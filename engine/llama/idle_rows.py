"""Idle rows: placeholder tokens in slots that have no row in a step, so that the others share a weight pass."""

from itertools import pairwise
from typing import TypeAlias

from engine.core.step import Chunk
from engine.llama.batch import Batch
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

    def bridge(self, before: int, after: int) -> bool:
        """Return whether the slots between two others can have an idle row each, and these take little time."""
        return self._between(before, after, 1) is not None

    def add(self, chunks: tuple[Chunk, ...], batch: Batch) -> list[IdleRow]:
        """Add idle rows to a decode step: as many in each slot as each chunk has. Return where they begin."""
        rows = chunks[0].rows
        if chunks[-1].seq_id - chunks[0].seq_id < len(chunks) or any(chunk.rows != rows for chunk in chunks):
            return []
        gaps = pairwise(chunk.seq_id for chunk in chunks)
        idle = [row for before, after in gaps for row in self._between(before, after, rows) or ()]
        for slot, position in idle:
            batch.add([0] * rows, seq_id=slot, start=position, output=False)
        if idle:
            batch.sort()
        return idle

    def drop(self, idle: list[IdleRow]) -> None:
        """Drop the cells of idle rows after their step."""
        for slot, position in idle:
            self._context.remove(slot, position)

    def _between(self, before: int, after: int, rows: int) -> list[IdleRow] | None:
        """Return the idle rows between two slots; None if they are too many or too deep, or a slot has no room."""
        traits, between = self._model.traits, range(before + 1, after)
        if rows * len(between) > traits.idle_rows:
            return None
        ends = list(map(self._context.end_of, between))
        room = max(ends, default=0) + rows <= self._model.info.context
        return list(zip(between, ends, strict=True)) if room and traits.bridges(rows * len(ends), sum(ends)) else None
