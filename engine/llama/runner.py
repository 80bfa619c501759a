"""Runs step plans with llama.cpp: fills the batch, decodes and draws."""

import ctypes
import logging
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Self

import llama_cpp
import numpy as np
from typing_extensions import override

from engine.config import EngineConfig
from engine.core.sequence import Sequence
from engine.core.step import (
    Chunk,
    Copy,
    Draw,
    DrawFailure,
    Forget,
    Outcome,
    Removal,
    Restore,
    Runner,
    Save,
    StepPlan,
    StepResult,
    Swap,
)
from engine.core.token import Score, Token
from engine.errors import EngineFault, LoadError
from engine.events import Alternative
from engine.llama.batch import Batch
from engine.llama.context import LlamaContext
from engine.llama.memory.parameters import BATCH_ROWS, all_cells, context_params
from engine.llama.model import LlamaModel
from engine.llama.state import State, StateMemory, StateSize, measure, read_state, state_bytes, write_state
from engine.sampling.candidates import Candidates, DrawError, Logits
from engine.sampling.constraint import Constraint
from engine.sampling.grammar import CompiledGrammar
from engine.sampling.logprobs import LogProbs
from engine.sampling.resources import SamplerResources
from engine.sampling.sampler import SequenceSampler

logger = logging.getLogger(__name__)

_PROBE_ROWS = 32  # enough for llama.cpp to choose the kernels of a prompt step

_MASK_THREADS = 4


class LlamaRunner(Runner):
    """Owns the C context, the samplers of its sequences and the saved cells, and frees them once."""

    def __init__(self, model: LlamaModel, config: EngineConfig) -> None:
        """Create the context, which allocates the KV cache. `model` must outlive the runner.

        Raises:
            LoadError: llama.cpp cannot create the context, usually because memory is short.
        """
        self._model = model
        self._batch = Batch(BATCH_ROWS, model.info.vocabulary)
        self._shared = SamplerResources(
            Candidates(model.info.vocabulary), model.end_tokens, model.info.context, model.dry
        )
        self._samplers: dict[Sequence, SequenceSampler] = {}
        self._row = ctypes.c_float * model.info.vocabulary
        self._saved: dict[int, State] = {}
        self._state_memory = StateMemory()
        with ExitStack() as resources:
            self._mask_workers = resources.enter_context(ThreadPoolExecutor(_MASK_THREADS, "masks"))
            self._context = resources.enter_context(_open_context(model, config))
            if not self._context.has_cache:
                raise LoadError(f"{config.model} cannot generate text token by token: it has no KV cache")
            resources.callback(self._close_samplers)
            resources.callback(self._state_memory.close)
            resources.callback(self._saved.clear)
            self._resources = resources.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.shut_down()

    def shut_down(self) -> None:
        """Free everything. Repeatable; no other method may be called afterwards."""
        self._resources.close()

    def probe(self) -> StateSize:
        """Decode a small prompt and a single token to prove that this machine can run the model.

        It takes as long as two small steps and the first read of the weights. A machine that cannot may die here.

        Returns:
            The maximum size of saved cells.

        Raises:
            LoadError: the results are no logits.
        """
        sizes: dict[int, int] = {}
        for rows in (min(_PROBE_ROWS, self._model.info.context), 1):
            self._batch.clear()
            tokens = [at % self._model.info.vocabulary for at in range(rows)]
            row = self._batch.add(tokens, seq_id=0, start=0, output=True)
            self._context.probe(self._batch)
            if not np.isfinite(self._logits(row)).all():
                raise LoadError(f"this machine cannot run the model: a step of {rows} tokens gave no logits")
            sizes[rows] = state_bytes(self._context.handle, 0)
            self.remove(Removal(0, 0))
        return measure(sizes)

    @override
    def remove(self, removal: Removal) -> None:
        self._context.remove(removal.seq_id, removal.start)

    @override
    def copy(self, copy: Copy) -> None:
        """Share the cells in a unified cache. Otherwise copy them through host memory, which costs by the source.

        There `llama_memory_seq_cp` would copy the full size of a slot.
        """
        if self._model.traits.pool is not None:
            self._context.share(copy.source, copy.target, copy.tokens if self._model.traits.can_trim else -1)
            return
        self._fill_slot(copy.target, read_state(self._context.handle, copy.source), copy.tokens)

    @override
    def swap(self, swap: Swap) -> None:
        """Exchange the cells of two slots through host memory."""
        context = self._context.handle
        one, other = read_state(context, swap.one), read_state(context, swap.other)
        write_state(context, swap.one, other)
        write_state(context, swap.other, one)

    @override
    def save(self, save: Save) -> bool:
        try:
            self._saved[save.key] = read_state(self._context.handle, save.seq_id, self._state_memory.take)
        except (OSError, EngineFault) as error:  # the cells did not change
            logger.warning("a prefix cannot be saved, and will be computed again: %s", error)
            return False
        return True

    @override
    def restore(self, restore: Restore) -> None:
        self._fill_slot(restore.seq_id, self._saved[restore.key], restore.tokens)

    @override
    def forget(self, forget: Forget) -> None:
        self._saved.pop(forget.key, None)

    @override
    def run(self, plan: StepPlan) -> StepResult:
        """Run one step. Its duration is that of the decode, without the draws.

        Raises:
            EngineFault: the model can no longer be trusted.
            ValueError: the plan is invalid.
        """
        rows = self._fill(plan)
        began = time.perf_counter()
        outcome = self._context.decode(self._batch)
        seconds = time.perf_counter() - began
        if outcome is Outcome.ABORTED:
            self._undo(plan)
        if outcome is not Outcome.DONE:
            return StepResult(outcome, (), seconds)
        placed = list(zip(plan.chunks, rows, strict=True))
        scores = tuple(self._score(chunk, row) for chunk, row in placed if chunk.score)
        draws = tuple(tuple(self._draws(chunk, row)) for chunk, row in placed if chunk.sample)
        return StepResult(outcome, draws, seconds, scores)

    @override
    def abort(self) -> None:
        self._context.abort()

    @override
    def arm(self) -> None:
        self._context.arm()

    @override
    def close(self, sequence: Sequence) -> None:
        sampler = self._samplers.pop(sequence, None)
        if sampler:
            sampler.close()

    def _fill_slot(self, seq_id: int, state: State, tokens: int) -> None:
        """Replace the cells of a slot by the first `tokens` of a state."""
        write_state(self._context.handle, seq_id, state)
        if self._model.traits.can_trim:
            self.remove(Removal(seq_id, tokens))

    def _fill(self, plan: StepPlan) -> list[int]:
        """Write the plan to the batch. Return the row of each chunk's last known token."""
        self._batch.clear()
        return [self._add(chunk) for chunk in plan.chunks]

    def _add(self, chunk: Chunk) -> int:
        last = self._batch.add(chunk.tokens, seq_id=chunk.seq_id, start=chunk.start, output=chunk.sample)
        row = last - len(chunk.draft)
        self._batch.ask(range(row, last))
        self._batch.ask(range(row + 1 - chunk.count, row + 1 - chunk.count + len(chunk.scored)))
        return row

    def _undo(self, plan: StepPlan) -> None:
        """Drop the cells of the physical batches that an aborted step finished."""
        for chunk in plan.chunks:
            self.remove(Removal(chunk.seq_id, chunk.start if self._model.traits.can_trim else 0))

    def _score(self, chunk: Chunk, last_row: int) -> tuple[Score, ...]:
        """Return the scores of the prompt tokens that follow the rows of a chunk."""
        first_row = last_row + 1 - chunk.count
        count = chunk.sequence.request.logprobs or 0
        return tuple(
            self._details(LogProbs(self._logits(first_row + at)), token, count) for at, token in enumerate(chunk.scored)
        )

    def _draws(self, chunk: Chunk, row: int) -> Iterator[Draw]:
        """Yield the token after the last known one, and further ones as long as draft tokens are accepted."""
        for accepted, drafted in enumerate((*chunk.draft, None)):
            drawn = self._draw(chunk.sequence, row + accepted)
            yield drawn
            if isinstance(drawn, DrawFailure) or drawn.ends or drawn.id != drafted:
                return

    def _draw(self, sequence: Sequence, row: int) -> Draw:
        """Draw a token for one sequence. Its failure does not affect the other sequences."""
        try:
            logits = self._logits(row)
            unchanged = None if sequence.request.logprobs is None else logits.copy()
            token = self._sampler(sequence).draw(logits)
        except DrawError as error:
            return DrawFailure(str(error))
        except Exception:
            logger.exception("a sampler failed", extra={"request_id": sequence.request.id})
            return DrawFailure("the sampler failed")
        piece, ends = self._model.piece(token, special=sequence.request.show_special), self._model.ends(token)
        if unchanged is None or sequence.request.logprobs is None:
            return Token(token, piece, ends)
        return Token(token, piece, ends, *self._details(LogProbs(unchanged), token, sequence.request.logprobs))

    def _details(self, logprobs: LogProbs, token: int, count: int) -> Score:
        top = (Alternative(at, self._model.piece(at, special=True), logprob) for at, logprob in logprobs.top(count))
        return logprobs.of(token), tuple(top)

    def _logits(self, row: int) -> Logits:
        pointer = llama_cpp.llama_get_logits_ith(self._context.handle, row)
        if not pointer:
            raise DrawError("llama.cpp gave no logits")
        buffer = memoryview(self._row.from_address(ctypes.addressof(pointer.contents)))
        return np.frombuffer(buffer, np.float32)

    def _sampler(self, sequence: Sequence) -> SequenceSampler:
        sampler = self._samplers.get(sequence)
        if sampler is None:
            sampler = self._samplers[sequence] = SequenceSampler(
                sequence.request.sampling,
                sequence.seed,
                self._shared,
                prompt=sequence.tokens[: sequence.prompt],
                stop_tokens=sequence.stop_tokens,
                constraint=self._constraint(sequence.grammar),
            )
        return sampler

    def _constraint(self, grammar: object | None) -> Constraint | None:
        """Return a new constraint by a compiled grammar.

        Raises:
            TypeError: the grammar was not compiled by this model.
        """
        if grammar is None:
            return None
        if not isinstance(grammar, CompiledGrammar):
            raise TypeError(f"{type(grammar).__name__} is no compiled grammar")
        return Constraint(grammar, self._mask_workers)

    def _close_samplers(self) -> None:
        for sequence in list(self._samplers):
            self.close(sequence)


def _open_context(model: LlamaModel, config: EngineConfig) -> LlamaContext:
    cells = model.info.cells if config.kv_unified else all_cells(config.slots, model.info.context)
    params = context_params(config, cells, model.attention)
    return LlamaContext(model, config, params, purpose=f"{config.slots} slots of {cells // config.slots} tokens")
