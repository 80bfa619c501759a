"""An embedder without llama.cpp: exact, instant, and strict about what a pass may ask."""

import math
import struct
import threading
from collections.abc import Callable

from engine.core.embedding.step import EmbeddingLimits, EmbeddingPlan, EmbeddingStepResult
from engine.core.step import Outcome

Hook = Callable[[], None]


def vector_of(tokens: list[int]) -> bytes:
    """A vector of length 1 that depends on every token and on their order."""
    state = 7
    for token in tokens:
        state = (state * 31 + token + 1) % 1_000_003
    return struct.pack("<2f", math.cos(state), math.sin(state))


class FakeEmbedder:
    """Keeps the tokens of every text under way, so that a wrong position or a foreign chunk cannot pass.

    Attributes:
        limits: what a pass must keep to.
        cells: the tokens resident in each `seq_id`.
        passes: every pass that was run, with the `seq_id` and count of each chunk.
        on_pass: called in each pass before anything is computed; may wait, for instance on `aborted`.
        aborted: set while an abort is asked for.
        numbers: whether vectors are numbers.
    """

    def __init__(self, *, rows: int = 64, cells: int = 256, texts: int = 4, splits: bool = True) -> None:
        self.limits = EmbeddingLimits(rows, cells, texts, longest=cells if splits else rows, splits=splits)
        self.cells: dict[int, list[int]] = {}
        self.passes: list[list[tuple[int, int]]] = []
        self.on_pass: Hook = lambda: None
        self.aborted = threading.Event()
        self.numbers = True

    def drop(self, seq_id: int) -> None:
        """Forget a text."""
        self.cells.pop(seq_id, None)

    def run(self, chunks: EmbeddingPlan) -> EmbeddingStepResult:
        """Make one pass of a second. Raises `RuntimeError` for what llama.cpp could not compute rightly."""
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

    def abort(self) -> None:
        """End the pass under way."""
        self.aborted.set()

    def arm(self) -> None:
        """Forget an earlier abort."""
        self.aborted.clear()

    def _check(self, chunks: EmbeddingPlan) -> None:
        ids = [chunk.seq_id for chunk in chunks]
        if not ids or len(set(ids)) < len(ids) or not all(0 <= seq_id < self.limits.texts for seq_id in ids):
            raise RuntimeError(f"a pass for the texts {ids}")
        if sum(chunk.count for chunk in chunks) > self.limits.rows:
            raise RuntimeError("more rows than a pass has")
        for chunk in chunks:
            if self.cells.get(chunk.seq_id, []) != chunk.text.tokens[: chunk.start]:
                raise RuntimeError(f"{chunk.seq_id} does not hold what its text has computed")
            if not chunk.count or not (self.limits.splits or chunk.last):
                raise RuntimeError(f"{chunk.count} tokens are no pass for {chunk.seq_id}")
        if sum(map(len, self.cells.values())) + sum(chunk.count for chunk in chunks) > self.limits.cells:
            raise RuntimeError("more cells than there are")
