"""A model and a runner without llama.cpp: exact, instant, and strict about what a plan may ask."""

import threading
from collections.abc import Callable

from engine.core.sequence import Sequence
from engine.core.step import Chunk, Copy, Draw, Outcome, Removal, StepPlan, StepResult
from engine.core.token import Token
from engine.events import ModelInfo

END = 256
"""The token that ends a generation. Ids below it are the bytes they stand for."""
VOCABULARY = END + 1

Script = Callable[[list[int]], int]


def letters(tokens: list[int]) -> int:
    """A lower-case letter that depends on every token before it and on their order."""
    state = 7
    for token in tokens:
        state = (state * 31 + token + 1) % 1_000_003
    return ord("a") + state % 26


class FakeModel:
    """A vocabulary of bytes."""

    def __init__(self, *, slots: int = 4, context: int = 512, trims: bool = True) -> None:
        self.info = ModelInfo(
            description="fake",
            vocabulary=VOCABULARY,
            context=context,
            trained_context=context,
            slots=slots,
            parameters=0,
            size=0,
        )
        self.trims = trims

    def tokenize(self, text: str) -> list[int]:
        """One token a byte."""
        return list(text.encode())


class FakeRunner:
    """Keeps the tokens of every cell, so that a wrong position, a stale cell or a foreign row cannot pass.

    Attributes:
        cells: the tokens resident in each `seq_id`.
        copied: cells copied in all.
        passes: every plan that was run, with the `seq_id` and count of each chunk.
        on_pass: called in each pass before anything is computed; may wait, for instance on `aborted`.
        aborted: set while an abort is asked for.
    """

    def __init__(self, model: FakeModel, *, script: Script = letters, capacity: int | None = None) -> None:
        """`script` chooses each next token; `capacity` bounds the cells of all slots together."""
        self._model = model
        self._script = script
        self._capacity = capacity
        self.cells: dict[int, list[int]] = {}
        self.open: set[Sequence] = set()
        self.copied = 0
        self.passes: list[list[tuple[int, int]]] = []
        self.on_pass: Callable[[StepPlan], None] = lambda _plan: None
        self.aborted = threading.Event()

    def remove(self, removal: Removal) -> None:
        """Drop cells; as in llama.cpp, part of a slot only where the model allows it."""
        if removal.start and not self._model.trims:
            raise RuntimeError("this model cannot drop part of a sequence")
        del self.cells.setdefault(removal.seq_id, [])[removal.start :]

    def copy(self, copy: Copy) -> None:
        """Copy cells. Raises `RuntimeError` for cells that are not there, or that the model cannot copy in part."""
        source = self.cells.get(copy.source, [])
        wrong = not 1 <= copy.tokens <= len(source) or copy.source == copy.target
        if wrong or (copy.tokens < len(source) and not self._model.trims):
            raise RuntimeError(f"slot {copy.source} has {len(source)} cells, not {copy.tokens} to copy")
        self.cells[copy.target] = source[: copy.tokens]
        self.copied += copy.tokens

    def run(self, plan: StepPlan) -> StepResult:
        """Make one pass of a second. Raises `RuntimeError` for a plan that llama.cpp could not run rightly."""
        self._check(plan)
        self.passes.append([(chunk.seq_id, chunk.count) for chunk in plan.chunks])
        self.on_pass(plan)
        if self.aborted.is_set():
            return StepResult(Outcome.ABORTED, (), 1.0)
        wanted = sum(len(cells) for cells in self.cells.values()) + sum(chunk.count for chunk in plan.chunks)
        if self._capacity is not None and wanted > self._capacity:
            return StepResult(Outcome.NO_ROOM, (), 1.0)
        draws = tuple(draw for chunk in plan.chunks if (draw := self._compute(chunk)))
        return StepResult(Outcome.DONE, draws, 1.0)

    def abort(self) -> None:
        """End the pass under way."""
        self.aborted.set()

    def arm(self) -> None:
        """Forget an earlier abort."""
        self.aborted.clear()

    def close(self, sequence: Sequence) -> None:
        """Forget a sequence."""
        self.open.discard(sequence)

    def _compute(self, chunk: Chunk) -> Draw | None:
        sequence = chunk.sequence
        cells = self.cells.setdefault(chunk.seq_id, [])
        cells += sequence.tokens[chunk.start : chunk.start + chunk.count]
        if not chunk.sample:
            return None
        self.open.add(sequence)
        token = self._script(cells)
        return Token(token, b"" if token == END else bytes([token]), ends=token == END)

    def _check(self, plan: StepPlan) -> None:
        ids = [chunk.seq_id for chunk in plan.chunks]
        if not ids or ids != sorted(set(ids)) or not 0 <= ids[0] <= ids[-1] < self._model.info.slots:
            raise RuntimeError(f"a plan for the slots {ids}")
        for chunk in plan.chunks:
            sequence = chunk.sequence
            resident = self.cells.get(chunk.seq_id, [])
            if resident != sequence.tokens[: chunk.start]:
                raise RuntimeError(f"slot {chunk.seq_id} does not hold what its sequence has computed")
            if not 1 <= chunk.count <= sequence.pending or len(resident) + chunk.count > self._model.info.context:
                raise RuntimeError(f"{chunk.count} tokens do not fit in slot {chunk.seq_id}")
