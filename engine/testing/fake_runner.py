"""Fake runner without llama.cpp: deterministic, instant, and strict about the validity of a plan."""

import threading
from collections.abc import Callable

from typing_extensions import override

from engine.core.sequence import Sequence
from engine.core.step import SCORED_AT_ONCE, Chunk, Draw, Outcome, Runner, StepPlan, StepResult
from engine.core.token import Score, Token
from engine.request import AdapterSet
from engine.testing.fake_cache import FakeCache
from engine.testing.fake_constraints import allows, barred_tokens, rest_of
from engine.testing.fake_model import END, VOCABULARY, FakeModel, adapted, letters, score, weights

Script = Callable[[list[int]], int]


class FakeRunner(Runner):
    """Raises `RuntimeError` for a wrong position, a stale cell or a foreign row."""

    def __init__(
        self, model: FakeModel, *, script: Script = letters, capacity: int | None = None, rewinds: bool = True
    ) -> None:
        """Create a runner.

        Args:
            model: the model, whose traits limit the changes of cells.
            script: returns each next token.
            capacity: the maximum number of cells of all slots together.
            rewinds: whether a model that cannot trim has partial states. A purely recurrent one has none.
        """
        self._model = model
        self._cache = FakeCache(model.traits, rewinds=rewinds)
        self._script = script
        self._capacity = capacity
        self.open: set[Sequence] = set()
        """Sequences with a sampler."""
        self.scored = 0
        """Total number of rows that scored a token."""
        self.passes: list[list[tuple[int, int]]] = []
        """`seq_id` and token count of each chunk of every step so far."""
        self.on_pass: Callable[[StepPlan], None] = lambda _plan: None
        """Called in each step before the computation; may wait, for example on `aborted`."""
        self.aborted = threading.Event()
        """Set by `abort`, cleared by `arm`."""

    @property
    @override
    def cache(self) -> FakeCache:
        return self._cache

    @override
    def run(self, plan: StepPlan) -> StepResult:
        """Run one step, with a reported duration of one second."""
        self._check(plan)
        self.passes.append([(chunk.seq_id, chunk.count) for chunk in plan.chunks])
        self.on_pass(plan)
        if self.aborted.is_set():
            return StepResult(Outcome.ABORTED, (), 1.0)
        wanted = sum(map(len, self._cache.cells.values())) + plan.tokens
        if self._capacity is not None and wanted > self._capacity:
            return StepResult(Outcome.NO_ROOM, (), 1.0)
        scores = tuple(self._compute(chunk) for chunk in plan.chunks)
        draws = tuple(self._draws(chunk) for chunk in plan.chunks if chunk.sample)
        self.scored += sum(map(len, scores))
        requested = (of_chunk for chunk, of_chunk in zip(plan.chunks, scores, strict=True) if chunk.score)
        outputs = sum(chunk.sample + len(chunk.scored) for chunk in plan.chunks) + plan.drafted
        return StepResult(Outcome.DONE, draws, 1.0, tuple(requested), outputs)

    @override
    def abort(self) -> None:
        self.aborted.set()

    @override
    def arm(self) -> None:
        self.aborted.clear()

    @override
    def close(self, sequence: Sequence) -> None:
        self.open.discard(sequence)

    def _compute(self, chunk: Chunk) -> tuple[Score, ...]:
        """Fill the cells and return the scores of the rows."""
        sequence = chunk.sequence
        cells = self._cache.compute(chunk.seq_id, chunk.tokens, sequence.adapters, drafted=len(chunk.draft))
        return tuple(
            self._score(sequence, cells[:at], token) for at, token in enumerate(chunk.scored, start=chunk.start + 1)
        )

    def _score(self, sequence: Sequence, before: list[int], token: int) -> Score:
        return score(weights(before, self._next(sequence, before)), token, sequence.request.logprobs or 0)

    def _next(self, sequence: Sequence, before: list[int]) -> int:
        return adapted(self._script(before), sequence.adapters)

    def _draws(self, chunk: Chunk) -> tuple[Draw, ...]:
        """Return the sampled tokens: one after the last known token, and one more for each accepted draft token."""
        cells = self._cache.cells[chunk.seq_id]
        known = chunk.start + chunk.count
        drawn: list[Draw] = []
        for accepted, drafted in enumerate([*chunk.draft, None]):
            drawn.append(token := self._draw(chunk.sequence, cells[: known + accepted]))
            if token.id != drafted or token.ends:
                break
        return tuple(drawn)

    def _draw(self, sequence: Sequence, cells: list[int]) -> Token:
        self.open.add(sequence)
        due = sequence.reasoning.due if sequence.reasoning else ()
        forced = bool(due) and allows(sequence, cells, due)
        token = due[0] if forced else self._choose(sequence, cells)
        if sequence.reasoning:
            sequence.reasoning.accept(self._model.piece(token, special=True), forced=forced)
        piece = self._model.piece(token, special=sequence.request.show_special)
        if sequence.request.logprobs is None:
            return Token(token, piece, ends=token == END)
        return Token(token, piece, token == END, *self._score(sequence, cells, token))

    def _choose(self, sequence: Sequence, cells: list[int]) -> int:
        """Return the token of the grammar or the script, else the most probable one allowed."""
        if isinstance(sequence.grammar, bytes):
            return rest_of(sequence.grammar, sequence, cells)[0]
        barred = barred_tokens(sequence, cells)
        scripted = self._next(sequence, cells)
        if scripted not in barred:
            return scripted
        shares = weights(cells, scripted)
        return max((token for token in range(VOCABULARY) if token not in barred), key=shares.__getitem__)

    def _check(self, plan: StepPlan) -> None:
        ids = [chunk.seq_id for chunk in plan.chunks]
        if not ids or ids != sorted(set(ids)) or not 0 <= ids[0] <= ids[-1] < self._model.info.slots:
            raise RuntimeError(f"a plan with invalid slots {ids}")
        if sum(len(chunk.scored) for chunk in plan.chunks) > SCORED_AT_ONCE:
            raise RuntimeError("a plan that scores more rows than a step can")
        for chunk in plan.chunks:
            self._check_adapters(chunk, plan.adapters)
            self._check_chunk(chunk)

    def _check_adapters(self, chunk: Chunk, adapters: AdapterSet) -> None:
        if chunk.sequence.adapters != adapters:
            raise RuntimeError(f"slot {chunk.seq_id} has other adapters than its step")
        if self._cache.cells.get(chunk.seq_id) and self._cache.computed_by[chunk.seq_id] != adapters:
            raise RuntimeError(f"the cells of slot {chunk.seq_id} were computed with other adapters")

    def _check_chunk(self, chunk: Chunk) -> None:
        sequence = chunk.sequence
        resident = self._cache.cells.get(chunk.seq_id, [])
        if resident != sequence.tokens[: chunk.start]:
            raise RuntimeError(f"slot {chunk.seq_id} has other cells than the computed tokens of its sequence")
        if not 1 <= chunk.count <= sequence.pending or len(resident) + len(chunk.tokens) > self._model.info.context:
            raise RuntimeError(f"{len(chunk.tokens)} tokens do not fit in slot {chunk.seq_id}")
        if chunk.draft and not (chunk.sample and len(chunk.draft) <= self._model.traits.max_draft):
            raise RuntimeError(f"draft tokens in slot {chunk.seq_id} without sampling, or that cannot be dropped")
        if chunk.sample and chunk.count < sequence.pending:
            raise RuntimeError(f"sampling in slot {chunk.seq_id} after a token that is not its sequence's last")
        if chunk.score and (sequence.request.logprobs is None or not chunk.scored):
            raise RuntimeError(f"no rows to score in slot {chunk.seq_id}")
