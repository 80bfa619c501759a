"""Runs step plans with llama.cpp: fills the batch, decodes and draws."""

import ctypes
import logging
import math
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from typing import Self

import llama_cpp
import numpy as np
from typing_extensions import override

from engine.config import EngineConfig
from engine.core.kv.cell_changes import Copy, Forget, Removal, Restore, Rewind, Save, Shift, Swap
from engine.core.kv.prefix_file import Discard, Fetch, Spill, SpillSlot
from engine.core.sequence import Sequence
from engine.core.step import Chunk, Draw, DrawFailure, Outcome, Runner, StepPlan, StepResult
from engine.core.token import Score, Token
from engine.events import Alternative
from engine.llama.batch import Batch
from engine.llama.cells import SlotCells
from engine.llama.context import LlamaContext
from engine.llama.memory.parameters import BATCH_ROWS, all_cells, context_params
from engine.llama.model import LlamaModel
from engine.llama.probe import Probe, probe
from engine.prefix_files.service import PrefixFileService
from engine.sampling.candidates import Candidates, DrawError, Logits
from engine.sampling.constraint import Constraint
from engine.sampling.grammar import CompiledGrammar
from engine.sampling.logprobs import LogProbs
from engine.sampling.resources import SamplerResources
from engine.sampling.sampler import SequenceSampler

logger = logging.getLogger(__name__)


_MASK_THREADS = 4


class LlamaRunner(Runner):
    """Owns the C context, the samplers of its sequences and the saved cells, and frees them once."""

    def __init__(self, model: LlamaModel, config: EngineConfig, files: PrefixFileService | None = None) -> None:
        """Create the context, which allocates the KV cache. `model` and `files` must outlive the runner.

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
        with ExitStack() as resources:
            self._mask_workers = resources.enter_context(ThreadPoolExecutor(_MASK_THREADS, "masks"))
            self._context = resources.enter_context(_open_context(model, config))
            self._context.check_generates(config)
            self._cells = resources.enter_context(closing(SlotCells(self._context, model, files)))
            self._resources = resources.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.shut_down()

    def shut_down(self) -> None:
        """Free everything. Repeatable; no other method may be called afterwards."""
        for sequence in list(self._samplers):
            self.close(sequence)
        self._resources.close()

    def probe(self) -> Probe:
        """Decode a small prompt and a single token to prove that this machine can run the model.

        It takes as long as two small steps and the first read of the weights. A machine that cannot may die here.

        Raises:
            LoadError: the results are no logits.
        """
        return probe(self._context, self._batch, self._model, self._logits)

    @override
    def remove(self, removal: Removal) -> None:
        self._context.remove(removal.seq_id, removal.start)

    @override
    def shift(self, shift: Shift) -> None:
        self._context.shift(shift.seq_id, shift.start, shift.count, self._batch)

    @override
    def copy(self, copy: Copy) -> None:
        self._cells.copy(copy)

    @override
    def swap(self, swap: Swap) -> None:
        self._cells.swap(swap)

    @override
    def save(self, save: Save) -> bool:
        return self._cells.save(save)

    @override
    def restore(self, restore: Restore) -> None:
        self._cells.restore(restore)

    @override
    def rewind(self, rewind: Rewind) -> None:
        self._cells.rewind(rewind)

    @override
    def forget(self, forget: Forget) -> None:
        self._cells.forget(forget)

    @override
    def read_cells(self, seq_id: int) -> bytes:
        return self._cells.read(seq_id)

    @override
    def write_cells(self, seq_id: int, cells: bytes, tokens: int) -> bool:
        return self._cells.write(seq_id, cells, tokens)

    @override
    def spill(self, spill: Spill) -> None:
        self._cells.spill(spill)

    @override
    def spill_slot(self, spill: SpillSlot) -> None:
        self._cells.spill_slot(spill)

    @override
    def fetch(self, fetch: Fetch) -> None:
        self._cells.fetch(fetch)

    @override
    def discard(self, discard: Discard) -> None:
        self._cells.discard(discard)

    @override
    def run(self, plan: StepPlan) -> StepResult:
        """Run one step. Its duration is that of the decode, without the draws.

        Raises:
            EngineFault: the model can no longer be trusted.
            ValueError: the plan is invalid.
        """
        rows = self._fill(plan)
        self._context.use_adapters(plan.adapters)
        began = time.perf_counter()
        outcome = self._context.decode(self._batch, abortable=self._may_abort(plan))
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

    def _may_abort(self, plan: StepPlan) -> bool:
        """Return whether an abort would leave other sequences as they are.

        llama.cpp keeps the recurrent states of a step side by side, and moves those of others out of the way within it.
        """
        return len(plan.chunks) == 1 or not self._model.traits.has_state

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
            sampler = self._sampler(sequence)
            token = sampler.draw(_allowed(logits, sequence))
            if sequence.reasoning:
                sequence.reasoning.accept(self._model.piece(token, special=True))
        except DrawError as error:
            return DrawFailure(str(error))
        except Exception:
            logger.exception("a sampler failed", extra={"request_id": sequence.request.id})
            return DrawFailure("the sampler failed")
        piece, ends = self._model.piece(token, special=sequence.request.show_special), self._model.ends(token)
        if unchanged is None or sequence.request.logprobs is None:
            return Token(token, piece, ends)
        shown = LogProbs(sampler.kept() if sequence.request.sampled_logprobs else unchanged)
        return Token(token, piece, ends, *self._details(shown, token, sequence.request.logprobs))

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
                keeps=sequence.request.sampled_logprobs,
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


def _allowed(logits: Logits, sequence: Sequence) -> Logits:
    """Return the logits, without all others if the reasoning's budget forces a token. Changes them in place."""
    forced = None if sequence.reasoning is None else sequence.reasoning.forced
    if forced is not None:
        logits.fill(-math.inf)
        logits[forced] = 0.0
    return logits


def _open_context(model: LlamaModel, config: EngineConfig) -> LlamaContext:
    cells = model.info.cells if config.kv_unified else all_cells(config.slots, model.info.context)
    memory = model.memory
    params = context_params(
        config, cells, model.attention, full_windows=memory.full_windows, snapshots=memory.snapshots
    )
    return LlamaContext(model, config, params, purpose=f"{config.slots} slots of {cells // config.slots} tokens")
