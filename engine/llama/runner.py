"""Plans to llama.cpp and back: fill the batch, decode, draw."""

import ctypes
import logging
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Self

import llama_cpp
import numpy as np

from engine.config import EngineConfig
from engine.core.sequence import Sequence
from engine.core.step import (
    SCORED_AT_ONCE,
    Chunk,
    Copy,
    Draw,
    DrawFailure,
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
from engine.errors import EngineFault, LoadError
from engine.events import Alternative
from engine.llama.abort import AbortFlag
from engine.llama.batch import Batch
from engine.llama.cpu import physical_cores
from engine.llama.log_bridge import first_cause, keep_complaints
from engine.llama.memory import CELL_BLOCK
from engine.llama.model import LlamaModel
from engine.llama.state import State, StateMemory, StateSize, measure, read_state, state_bytes, write_state
from engine.sampling.candidates import Candidates, DrawError, Logits
from engine.sampling.constraint import Constraint
from engine.sampling.grammar import CompiledGrammar
from engine.sampling.logprobs import LogProbs
from engine.sampling.resources import SamplerResources
from engine.sampling.sampler import SequenceSampler

logger = logging.getLogger(__name__)

KV_UNIFIED = False
"""A cache of its own for each sequence. Neighbouring `seq_id`s with equally many tokens then share one pass over the
weights, and each attends to its own cells alone: at 16 rows and 1,024 tokens each a step takes 440 ms instead of 610,
and a sequence always finds room for its context."""
BATCH_ROWS = 2048
"""The most a plan may carry."""
_PROBE_ROWS = 32  # enough for llama.cpp to choose the kernels of a prompt pass

_MASK_THREADS = 4

_DONE, _NO_ROOM, _ABORTED = 0, 1, 2  # what llama_decode returns


class LlamaRunner:
    """Owns the C context, the samplers of its sequences and the cells it saved, and frees them once.

    See `engine.core.step.Runner`.
    """

    def __init__(self, model: LlamaModel, config: EngineConfig) -> None:
        """Make the context, which takes the KV cache's memory. `model` must outlive the runner.

        Raises `LoadError` where llama.cpp refuses, for want of memory above all.
        """
        self._model = model
        self._abort = AbortFlag()
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
            self._context = _open_context(model, config, self._abort)
            resources.callback(llama_cpp.llama_free, self._context)
            self._memory = llama_cpp.llama_get_memory(self._context)
            if not self._memory:
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
        """Free everything. Repeatable; no other method may be called after it."""
        self._resources.close()

    def probe(self) -> StateSize:
        """Prove that this machine can run the model: decode a small prompt and a single token, and forget them.

        Gives what saved cells take. Takes as long as two small passes, and the first reading of the weights. A machine
        that cannot may die here. Raises `LoadError` where what comes out is no logits.
        """
        sizes: dict[int, int] = {}
        for rows in (min(_PROBE_ROWS, self._model.info.context), 1):
            self._batch.clear()
            tokens = [at % self._model.info.vocabulary for at in range(rows)]
            row = self._batch.add(tokens, seq_id=0, start=0, output=True)
            status = self._decode()
            if status != _DONE or not np.isfinite(self._logits(row)).all():
                raise LoadError(f"this machine cannot run the model: a pass of {rows} tokens failed (status {status})")
            sizes[rows] = state_bytes(self._context, 0)
            self.remove(Removal(0, 0))
        return measure(sizes)

    def remove(self, removal: Removal) -> None:
        """Drop cells. Raises `EngineFault` for a part of a sequence whose model cannot forget parts."""
        if not llama_cpp.llama_memory_seq_rm(self._memory, removal.seq_id, removal.start, -1):
            raise EngineFault("llama.cpp could not drop the end of a sequence", code="engine_failed")

    def copy(self, copy: Copy) -> None:
        """Copy cells by way of host memory, which costs by the cells that the source holds.

        `llama_memory_seq_cp` would copy, between streams, all that a slot could hold. Raises `EngineFault` where
        llama.cpp refuses.
        """
        self._fill_slot(copy.target, read_state(self._context, copy.source), copy.tokens)

    def swap(self, swap: Swap) -> None:
        """Exchange the cells of two slots by way of host memory. Raises `EngineFault` where llama.cpp refuses."""
        one, other = read_state(self._context, swap.one), read_state(self._context, swap.other)
        write_state(self._context, swap.one, other)
        write_state(self._context, swap.other, one)

    def save(self, save: Save) -> bool:
        """Copy cells to host memory; gives whether that could be done."""
        try:
            self._saved[save.key] = read_state(self._context, save.seq_id, self._state_memory.take)
        except (OSError, EngineFault) as error:  # the cells are as they were
            logger.warning("a prefix cannot be saved, and will be computed again: %s", error)
            return False
        return True

    def restore(self, restore: Restore) -> None:
        """Copy saved cells to a slot. Raises `EngineFault` where llama.cpp refuses."""
        self._fill_slot(restore.seq_id, self._saved[restore.key], restore.tokens)

    def forget(self, forget: Forget) -> None:
        """Free saved cells."""
        self._saved.pop(forget.key, None)

    def run(self, plan: StepPlan) -> StepResult:
        """Make one pass; its seconds are those of the decode, without the draws.

        Raises `EngineFault` when the model can no longer be trusted, `ValueError` for a plan that cannot be right.
        """
        rows = self._fill(plan)
        began = time.perf_counter()
        status = self._decode()
        seconds = time.perf_counter() - began
        if status == _DONE:
            placed = list(zip(plan.chunks, rows, strict=True))
            scores = tuple(self._score(chunk, row) for chunk, row in placed if chunk.score)
            draws = tuple(tuple(self._draws(chunk, row)) for chunk, row in placed if chunk.sample)
            return StepResult(Outcome.DONE, draws, seconds, scores)
        if status == _NO_ROOM:
            return StepResult(Outcome.NO_ROOM, (), seconds)
        if status == _ABORTED:
            self._undo(plan)
            return StepResult(Outcome.ABORTED, (), seconds)
        raise EngineFault(f"llama.cpp could not decode (status {status})", code="decode_failed")

    def abort(self) -> None:
        """From any thread: end the pass that runs now, or the next one if `arm` was called since the last pass."""
        self._abort.set()

    def arm(self) -> None:
        """Forget an earlier `abort`."""
        self._abort.clear()

    def close(self, sequence: Sequence) -> None:
        """Free a sequence's sampler. Repeatable."""
        sampler = self._samplers.pop(sequence, None)
        if sampler:
            sampler.close()

    def _fill_slot(self, seq_id: int, state: State, tokens: int) -> None:
        """Make the first `tokens` of these all the cells of a slot."""
        write_state(self._context, seq_id, state)
        if self._model.traits.can_trim:
            self.remove(Removal(seq_id, tokens))

    def _fill(self, plan: StepPlan) -> list[int]:
        """The plan as a batch; gives the row of each chunk's last known token."""
        self._batch.clear()
        return [self._add(chunk) for chunk in plan.chunks]

    def _add(self, chunk: Chunk) -> int:
        last = self._batch.add(chunk.tokens, seq_id=chunk.seq_id, start=chunk.start, output=chunk.sample)
        row = last - len(chunk.draft)
        self._batch.ask(range(row, last))
        self._batch.ask(range(row + 1 - chunk.count, row + 1 - chunk.count + len(chunk.scored)))
        return row

    def _decode(self) -> int:
        """What `llama_decode` returns. Its complaints of an abort or of no room are no news and are not logged."""
        with keep_complaints(logging.WARNING) as complaints:
            status = int(llama_cpp.llama_decode(self._context, self._batch.c))
            llama_cpp.llama_synchronize(self._context)  # a GPU may still be at work
        if status not in (_NO_ROOM, _ABORTED):
            for complaint in complaints:
                logger.warning("llama_decode: %s", complaint)
        return status

    def _undo(self, plan: StepPlan) -> None:
        """Drop what an aborted pass left in the cells: the physical batches it had finished."""
        for chunk in plan.chunks:
            self.remove(Removal(chunk.seq_id, chunk.start if self._model.traits.can_trim else 0))

    def _score(self, chunk: Chunk, last_row: int) -> tuple[Score, ...]:
        """What the chunk's rows say of the prompt's tokens that follow them."""
        first_row = last_row + 1 - chunk.count
        count = chunk.sequence.logprobs or 0
        return tuple(
            self._details(LogProbs(self._logits(first_row + at)), token, count) for at, token in enumerate(chunk.scored)
        )

    def _draws(self, chunk: Chunk, row: int) -> Iterator[Draw]:
        """The token after the last known one, and further ones as long as the draft is right."""
        for right, guess in enumerate((*chunk.draft, None)):
            drawn = self._draw(chunk.sequence, row + right)
            yield drawn
            if isinstance(drawn, DrawFailure) or drawn.ends or drawn.id != guess:
                return

    def _draw(self, sequence: Sequence, row: int) -> Draw:
        """A token for one sequence. Its trouble is its own: no exception reaches the neighbours."""
        try:
            logits = self._logits(row)
            unchanged = None if sequence.logprobs is None else logits.copy()
            token = self._sampler(sequence).draw(logits)
        except DrawError as error:
            return DrawFailure(str(error))
        except Exception:
            logger.exception("a sampler failed", extra={"request_id": sequence.request_id})
            return DrawFailure("the sampler failed")
        piece, ends = self._model.piece(token, special=sequence.show_special), self._model.ends(token)
        if unchanged is None or sequence.logprobs is None:
            return Token(token, piece, ends)
        return Token(token, piece, ends, *self._details(LogProbs(unchanged), token, sequence.logprobs))

    def _details(self, logprobs: LogProbs, token: int, count: int) -> Score:
        top = (Alternative(at, self._model.piece(at, special=True), logprob) for at, logprob in logprobs.top(count))
        return logprobs.of(token), tuple(top)

    def _logits(self, row: int) -> Logits:
        pointer = llama_cpp.llama_get_logits_ith(self._context, row)
        if not pointer:
            raise DrawError("llama.cpp gave no logits")
        buffer = memoryview(self._row.from_address(ctypes.addressof(pointer.contents)))
        return np.frombuffer(buffer, np.float32)

    def _sampler(self, sequence: Sequence) -> SequenceSampler:
        sampler = self._samplers.get(sequence)
        if sampler is None:
            sampler = self._samplers[sequence] = SequenceSampler(
                sequence.sampling,
                sequence.seed,
                self._shared,
                prompt=sequence.tokens[: sequence.prompt],
                stop_tokens=sequence.stop_tokens,
                constraint=self._constraint(sequence.grammar),
            )
        return sampler

    def _constraint(self, grammar: object | None) -> Constraint | None:
        """Raises `TypeError` for a grammar that this model's `compile` has not made."""
        if grammar is None:
            return None
        if not isinstance(grammar, CompiledGrammar):
            raise TypeError(f"{type(grammar).__name__} is no compiled grammar")
        return Constraint(grammar, self._mask_workers)

    def _close_samplers(self) -> None:
        for sequence in list(self._samplers):
            self.close(sequence)


def _open_context(model: LlamaModel, config: EngineConfig, abort: AbortFlag) -> int:
    threads = config.threads or physical_cores()
    params = llama_cpp.llama_context_default_params()
    params.n_ctx = config.slots * -(-model.info.context // CELL_BLOCK) * CELL_BLOCK
    params.n_seq_max = config.slots
    params.n_batch, params.n_ubatch = BATCH_ROWS, max(model.attention.batch, config.slots)
    params.n_outputs_max = config.slots + SCORED_AT_ONCE  # room for every row would be a gigabyte of logits
    params.n_threads, params.n_threads_batch = threads, config.threads_batch or threads
    params.flash_attn_type = model.attention.kind
    params.kv_unified = KV_UNIFIED
    params.abort_callback, params.abort_callback_data = abort.callback, abort.data
    with keep_complaints(logging.ERROR) as errors:
        context = llama_cpp.llama_init_from_model(model.handle, params)
    if not context:
        raise LoadError(f"{config.slots} slots of {model.info.context} tokens cannot be made: {first_cause(errors)}")
    return int(context)
