"""Fake embedder without llama.cpp: deterministic, instant, and strict about the validity of a plan."""

import math
import struct
import threading
from collections.abc import Callable

from typing_extensions import override

from engine.core.embedding.step import Embedder, EmbeddingLimits, EmbeddingPlan, EmbeddingStepResult
from engine.core.step import Outcome
from engine.testing.fake_model import digest

Hook = Callable[[], None]


def vector_of(tokens: list[int]) -> bytes:
    """Return a unit vector that depends on every token and on their order."""
    state = digest(tokens)
    return struct.pack("<2f", math.cos(state), math.sin(state))


class FakeEmbedder(Embedder):
    """Records the tokens of every unfinished text, so that a wrong position or a foreign chunk raises an error."""

    def __init__(
        self, *, rows: int = 64, cells: int = 256, smallest: int | None = None, texts: int = 4, splits: bool = True
    ) -> None:
        longest = cells if splits else rows
        self.limits = EmbeddingLimits(rows, cells, smallest or cells, texts, longest=longest, splits=splits)
        """Limits of a step."""
        self.room = self.limits.smallest
        """Number of its cells."""
        self.shut = False
        """True after `shut_down`."""
        self.cells: dict[int, list[int]] = {}
        """Resident tokens of each `seq_id`."""
        self.passes: list[list[tuple[int, int]]] = []
        """`seq_id` and token count of each chunk of every step so far."""
        self.on_pass: Hook = lambda: None
        """Called in each step before the computation; may wait, for example on `aborted`."""
        self.aborted = threading.Event()
        """Set by `abort`, cleared by `arm`."""
        self.on_progress = lambda: None
        self.numbers = True
        """False to return None, as for a vector that is not finite."""

    def larger(self, cells: int) -> "FakeEmbedder":
        """Return an embedder with so many cells that is like this one otherwise."""
        other = FakeEmbedder()
        other.limits, other.room = self.limits, cells
        return other

    @override
    def shut_down(self) -> None:
        """Shut down.

        Raises:
            RuntimeError: it holds cells of an unfinished text.
        """
        if self.cells:
            raise RuntimeError(f"an embedder with unfinished texts {list(self.cells)} was shut down")
        self.shut = True

    @override
    def drop(self, seq_id: int) -> None:
        self.cells.pop(seq_id, None)

    @override
    def run(self, chunks: EmbeddingPlan) -> EmbeddingStepResult:
        """Run one step, with a reported duration of one second.

        Raises:
            RuntimeError: llama.cpp could not compute the plan correctly.
        """
        self._check(chunks)
        self.passes.append([(chunk.seq_id, chunk.count) for chunk in chunks])
        self.on_pass()
        if self.aborted.is_set():
            return EmbeddingStepResult(Outcome.ABORTED, (), 1.0)
        vectors = []
        for chunk in chunks:
            cells = self.cells.setdefault(chunk.seq_id, [])
            cells += chunk.text.tokens[chunk.start : chunk.start + chunk.count]
            if chunk.last:
                vector = vector_of(self.cells.pop(chunk.seq_id))
                vectors.append(vector if self.numbers else None)
        return EmbeddingStepResult(Outcome.DONE, tuple(vectors), 1.0)

    @override
    def abort(self) -> None:
        self.aborted.set()

    @override
    def arm(self) -> None:
        self.aborted.clear()

    def _check(self, chunks: EmbeddingPlan) -> None:
        if self.shut:
            raise RuntimeError("a step of an embedder that was shut down")
        ids = [chunk.seq_id for chunk in chunks]
        if not ids or len(set(ids)) < len(ids) or not all(0 <= seq_id < self.limits.texts for seq_id in ids):
            raise RuntimeError(f"a step with invalid texts {ids}")
        if sum(chunk.count for chunk in chunks) > self.limits.rows:
            raise RuntimeError("more rows than the limit of a step")
        for chunk in chunks:
            if self.cells.get(chunk.seq_id, []) != chunk.text.tokens[: chunk.start]:
                raise RuntimeError(f"the cells of {chunk.seq_id} differ from the computed tokens of its text")
            if not chunk.count or not (self.limits.splits or chunk.last):
                raise RuntimeError(f"{chunk.count} tokens are not a valid chunk for {chunk.seq_id}")
        if sum(map(len, self.cells.values())) + sum(chunk.count for chunk in chunks) > self.room:
            raise RuntimeError("more cells than the limit")
