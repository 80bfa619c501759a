"""A model and a runner without llama.cpp: exact, instant, and strict about what a plan may ask."""

import heapq
import math
import re
import sys
import threading
from collections.abc import Callable

from engine.core.model import ModelTraits
from engine.core.sequence import Sequence
from engine.core.step import (
    SCORED_AT_ONCE,
    Chunk,
    Copy,
    Draw,
    Forget,
    Outcome,
    Removal,
    Restore,
    Save,
    StepPlan,
    StepResult,
    Swap,
)
from engine.core.token import Score, Token
from engine.errors import RequestError
from engine.events import Alternative, ModelInfo
from engine.request import Grammar, Sampling

END, PREFIX, SUFFIX, MIDDLE = range(256, 260)
"""Control tokens: the end of a generation, and those of a gap to fill. Ids below them are the bytes they stand for."""
NAMES = {END: b"<end>", PREFIX: b"<prefix>", SUFFIX: b"<suffix>", MIDDLE: b"<middle>"}
VOCABULARY = MIDDLE + 1
_NAME = re.compile(b"(" + b"|".join(NAMES.values()) + b")")

Script = Callable[[list[int]], int]


def letters(tokens: list[int]) -> int:
    """A lower-case letter that depends on every token before it and on their order."""
    return ord("a") + _digest(tokens) % 26


def weights(tokens: list[int], likeliest: int) -> list[int]:
    """Each token's share in the probability of what follows, unnormalised; depends on every token before it."""
    digest = _digest(tokens)
    shares = [1 + (digest + 1) * (token + 7) % 101 for token in range(VOCABULARY)]
    shares[likeliest] += 1000
    return shares


def score(shares: list[int], token: int, alternatives: int) -> Score:
    """The log-probability of a token, and the likeliest ones in its place; of equal ones the lowest ids."""
    total = sum(shares)
    best = heapq.nlargest(alternatives, range(VOCABULARY), key=shares.__getitem__)
    top = tuple(Alternative(one, spell(one, special=True), math.log(shares[one] / total)) for one in best)
    return math.log(shares[token] / total), top


def spell(token: int, *, special: bool) -> bytes:
    """The bytes of a token. Raises `ValueError` for an id that there is not."""
    if not 0 <= token < VOCABULARY:
        raise ValueError(f"token id {token} is out of range")
    if token in NAMES:
        return NAMES[token] if special else b""
    return bytes([token])


def _digest(tokens: list[int]) -> int:
    state = 7
    for token in tokens:
        state = (state * 31 + token + 1) % 1_000_003
    return state


class FakeModel:
    """A vocabulary of bytes, and a few control tokens."""

    def __init__(
        self,
        *,
        slots: int = 4,
        context: int = 512,
        can_trim: bool = True,
        infills: bool = True,
        cells_per_weight_pass: int = 64,
        min_prefill_chunk: int = 64,
    ) -> None:
        self.info = ModelInfo(
            description="fake",
            vocabulary=VOCABULARY,
            context=context,
            trained_context=context,
            slots=slots,
            parameters=0,
            size=0,
            infills=infills,
            eos=NAMES[END].decode(),
        )
        self.traits = ModelTraits(cells_per_weight_pass, min_prefill_chunk, can_trim)

    def tokenize(self, text: str, *, special: bool = True, begin: bool = True) -> list[int]:  # noqa: ARG002 - it adds none
        """One token a byte, and one for the name of a control token if `special`."""
        parts = _NAME.split(text.encode()) if special else [text.encode()]  # every other one is a name
        ids = {name: token for token, name in NAMES.items()}
        return [token for at, part in enumerate(parts) for token in ([ids[part]] if at % 2 else part)]

    def infill(self, prefix: str, suffix: str) -> list[int]:
        """Both texts, each behind its control token. Raises `RequestError` where the model is made without them."""
        if not self.info.infills:
            raise RequestError("this model cannot fill in", param="suffix", code="unsupported")
        return [PREFIX, *prefix.encode(), SUFFIX, *suffix.encode(), MIDDLE]

    def piece(self, token: int, *, special: bool = False) -> bytes:
        """The bytes of a token."""
        return spell(token, special=special)

    def compile(self, grammar: Grammar) -> bytes:
        """The one text that matches: the source itself, whatever its kind. Raises `RequestError` for an empty one."""
        if not grammar.source:
            raise RequestError("the grammar is empty", param="grammar", code="invalid_grammar")
        return grammar.source.encode()

    def prepare(self, sampling: Sampling) -> None:
        """There is nothing to make."""


class FakeRunner:
    """Keeps the tokens of every cell, so that a wrong position, a stale cell or a foreign row cannot pass.

    Attributes:
        cells: the tokens resident in each `seq_id`.
        saved: the tokens of the cells saved under each key.
        room: how many cells it has memory to save.
        copied: cells copied, saved and restored in all.
        scored: rows that scored a token, in all.
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
        self.saved: dict[int, list[int]] = {}
        self.room = sys.maxsize
        self.open: set[Sequence] = set()
        self.copied = 0
        self.scored = 0
        self.passes: list[list[tuple[int, int]]] = []
        self.on_pass: Callable[[StepPlan], None] = lambda _plan: None
        self.aborted = threading.Event()

    def remove(self, removal: Removal) -> None:
        """Drop cells; as in llama.cpp, part of a slot only where the model allows it."""
        if removal.start and not self._model.traits.can_trim:
            raise RuntimeError("this model cannot drop part of a sequence")
        del self.cells.setdefault(removal.seq_id, [])[removal.start :]

    def copy(self, copy: Copy) -> None:
        """Copy cells. Raises `RuntimeError` for cells that are not there, or that the model cannot copy in part."""
        source = self.cells.get(copy.source, [])
        wrong = not 1 <= copy.tokens <= len(source) or copy.source == copy.target
        if wrong or (copy.tokens < len(source) and not self._model.traits.can_trim):
            raise RuntimeError(f"slot {copy.source} has {len(source)} cells, not {copy.tokens} to copy")
        self.cells[copy.target] = source[: copy.tokens]
        self.copied += copy.tokens

    def swap(self, swap: Swap) -> None:
        """Exchange the cells of two slots. Raises `RuntimeError` where one of them has none."""
        one, other = self.cells.get(swap.one, []), self.cells.get(swap.other, [])
        if not one or not other or swap.one == swap.other:
            raise RuntimeError(f"slots {swap.one} and {swap.other} have nothing to exchange")
        self.cells[swap.one], self.cells[swap.other] = other, one
        self.copied += len(one) + len(other)

    def save(self, save: Save) -> bool:
        """Copy cells to memory, if there is any. Raises `RuntimeError` for a key in use, or where there are none."""
        cells = self.cells.get(save.seq_id, [])
        if not cells or save.key in self.saved:
            raise RuntimeError(f"{len(cells)} cells of slot {save.seq_id} to save under the key {save.key}")
        if sum(map(len, self.saved.values())) + len(cells) > self.room:
            return False
        self.saved[save.key] = cells.copy()
        self.copied += len(cells)
        return True

    def restore(self, restore: Restore) -> None:
        """Copy saved cells. Raises `RuntimeError` as `copy` does."""
        saved = self.saved.get(restore.key, [])
        if not 1 <= restore.tokens <= len(saved) or (restore.tokens < len(saved) and not self._model.traits.can_trim):
            raise RuntimeError(f"{len(saved)} cells are saved under {restore.key}, not {restore.tokens} to restore")
        self.cells[restore.seq_id] = saved[: restore.tokens]
        self.copied += len(saved)

    def forget(self, forget: Forget) -> None:
        """Free saved cells."""
        self.saved.pop(forget.key, None)

    def run(self, plan: StepPlan) -> StepResult:
        """Make one pass of a second. Raises `RuntimeError` for a plan that llama.cpp could not run rightly."""
        self._check(plan)
        self.passes.append([(chunk.seq_id, chunk.count) for chunk in plan.chunks])
        self.on_pass(plan)
        if self.aborted.is_set():
            return StepResult(Outcome.ABORTED, (), 1.0)
        wanted = sum(map(len, self.cells.values())) + plan.tokens
        if self._capacity is not None and wanted > self._capacity:
            return StepResult(Outcome.NO_ROOM, (), 1.0)
        scores = tuple(self._compute(chunk) for chunk in plan.chunks)
        draws = tuple(self._draws(chunk) for chunk in plan.chunks if chunk.sample)
        self.scored += sum(map(len, scores))
        told = (of_chunk for chunk, of_chunk in zip(plan.chunks, scores, strict=True) if chunk.score)
        return StepResult(Outcome.DONE, draws, 1.0, tuple(told))

    def abort(self) -> None:
        """End the pass under way."""
        self.aborted.set()

    def arm(self) -> None:
        """Forget an earlier abort."""
        self.aborted.clear()

    def close(self, sequence: Sequence) -> None:
        """Forget a sequence."""
        self.open.discard(sequence)

    def _compute(self, chunk: Chunk) -> tuple[Score, ...]:
        """Fill the cells; gives what the rows score."""
        sequence = chunk.sequence
        cells = self.cells.setdefault(chunk.seq_id, [])
        cells += chunk.tokens
        return tuple(
            self._score(sequence, cells[:at], token) for at, token in enumerate(chunk.scored, start=chunk.start + 1)
        )

    def _score(self, sequence: Sequence, before: list[int], token: int) -> Score:
        return score(weights(before, self._script(before)), token, sequence.request.logprobs or 0)

    def _draws(self, chunk: Chunk) -> tuple[Draw, ...]:
        """The token after the last known one, and further ones as long as the draft is right."""
        cells = self.cells[chunk.seq_id]
        known = chunk.start + chunk.count
        drawn: list[Draw] = []
        for accepted, drafted in enumerate([*chunk.draft, None]):
            drawn.append(token := self._draw(chunk.sequence, cells[: known + accepted]))
            if token.id != drafted or token.ends:
                break
        return tuple(drawn)

    def _draw(self, sequence: Sequence, cells: list[int]) -> Token:
        self.open.add(sequence)
        token = self._choose(sequence, cells)
        piece = self._model.piece(token, special=sequence.request.show_special)
        if sequence.request.logprobs is None:
            return Token(token, piece, ends=token == END)
        return Token(token, piece, token == END, *self._score(sequence, cells, token))

    def _choose(self, sequence: Sequence, cells: list[int]) -> int:
        """What the grammar asks for, else what the script says, else the likeliest that may come."""
        generated = len(cells) - sequence.prompt
        if isinstance(sequence.grammar, bytes):
            forced: list[int] = [*sequence.grammar, END]
            return forced[generated]
        early = generated < sequence.request.sampling.min_tokens
        barred = {END} if early or sequence.request.sampling.ignore_eos else set()
        barred |= sequence.stop_tokens if early else set()
        scripted = self._script(cells)
        if scripted not in barred:
            return scripted
        shares = weights(cells, scripted)
        return max((token for token in range(VOCABULARY) if token not in barred), key=shares.__getitem__)

    def _check(self, plan: StepPlan) -> None:
        ids = [chunk.seq_id for chunk in plan.chunks]
        if not ids or ids != sorted(set(ids)) or not 0 <= ids[0] <= ids[-1] < self._model.info.slots:
            raise RuntimeError(f"a plan for the slots {ids}")
        if sum(len(chunk.scored) for chunk in plan.chunks) > SCORED_AT_ONCE:
            raise RuntimeError("a plan that scores more rows than a pass has room for")
        for chunk in plan.chunks:
            self._check_chunk(chunk)

    def _check_chunk(self, chunk: Chunk) -> None:
        sequence = chunk.sequence
        resident = self.cells.get(chunk.seq_id, [])
        if resident != sequence.tokens[: chunk.start]:
            raise RuntimeError(f"slot {chunk.seq_id} does not hold what its sequence has computed")
        if not 1 <= chunk.count <= sequence.pending or len(resident) + len(chunk.tokens) > self._model.info.context:
            raise RuntimeError(f"{len(chunk.tokens)} tokens do not fit in slot {chunk.seq_id}")
        if chunk.draft and not (chunk.sample and self._model.traits.can_trim):
            raise RuntimeError(f"a draft in slot {chunk.seq_id} without a draw, or one that cannot be dropped")
        if chunk.sample and chunk.count < sequence.pending:
            raise RuntimeError(f"a draw in slot {chunk.seq_id} after a token that is not its sequence's last")
        if chunk.score and (sequence.request.logprobs is None or not chunk.scored):
            raise RuntimeError(f"nothing to score in slot {chunk.seq_id}")
