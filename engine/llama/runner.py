"""Runs step plans with llama.cpp: fills the batch, decodes and draws."""

import logging
import time
from contextlib import ExitStack, closing
from dataclasses import replace
from itertools import islice
from typing import Self

from typing_extensions import override

from engine.config import EngineConfig
from engine.core.kv.cell_changes import Removal
from engine.core.sequence import Sequence
from engine.core.step import Chunk, Outcome, Runner, StepPlan, StepResult
from engine.errors import EngineFault
from engine.llama.backend_sampling.best_tokens import BestTokens
from engine.llama.backend_sampling.samplers import TopKSamplers
from engine.llama.batch import Batch
from engine.llama.cells import SlotCells
from engine.llama.context import LlamaContext
from engine.llama.cpu.properties import usable_cores
from engine.llama.drawing import Drawer, OutputsOf, outputs_of_all, outputs_of_best
from engine.llama.idle_rows import IdleRow, IdleRows
from engine.llama.memory.buffers import Buffers
from engine.llama.memory.parameters import BATCH_ROWS, all_cells, context_params
from engine.llama.model import LlamaModel
from engine.llama.probe import Probe, measure_copies, probe
from engine.prefix_files.service import PrefixFileService

logger = logging.getLogger(__name__)

_MOST_DRAW_THREADS = 8


class LlamaRunner(Runner):
    """Owns the C context, the samplers of its sequences and the saved cells, and frees them once."""

    def __init__(self, model: LlamaModel, config: EngineConfig, files: PrefixFileService | None = None) -> None:
        """Create the context, which allocates the KV cache. `model` and `files` must outlive the runner.

        Raises:
            LoadError: llama.cpp cannot create the context, usually because memory is short.
        """
        self._model = model
        self._batch = Batch(BATCH_ROWS, model.info.vocabulary)
        self._in_parts = not config.kv_unified and (model.attention.shares_depth or not model.aborts)
        with ExitStack() as resources:
            self._context, self._best = _open_context(model, config, resources)
            self._idle_rows = IdleRows(self._context, model)
            self._cache = resources.enter_context(closing(SlotCells(self._context, model, files, self._batch)))
            self._drawer = resources.enter_context(closing(Drawer(model, _draw_threads(model))))
            self._resources = resources.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.shut_down()

    def shut_down(self) -> None:
        """Free everything. Repeatable; no other method may be called afterwards."""
        self._resources.close()

    @property
    def buffers(self) -> Buffers:
        """Bytes that the context allocated."""
        return self._context.buffers

    def probe(self) -> Probe:
        """Decode a small prompt and a single token to prove that this machine can run the model.

        It takes as long as some small steps and the first read of the weights. A machine that cannot may die here.

        Raises:
            LoadError: the results are no logits.
        """
        if self._best is None:
            return self._probe()
        self._best.detach()
        probed = self._probe()
        if self._model.backend_sampling or self._best.are_faster(self._batch):
            self._best.attach()
        else:
            self._best = None
        logger.info("tokens are selected on the %s", "device of the output layer" if self._best else "host")
        return probed

    def _probe(self) -> Probe:
        """Return the findings. Where the host computes, copies are known to take little of the time of a token."""
        probed = probe(self._context, self._batch, self._model, self._cache)
        if not self._model.copies_through_host or self._model.info.context <= self._model.attention.chunk:
            return probed
        return replace(probed, copies=measure_copies(self._context, self._batch, self._model))

    @property
    @override
    def cache(self) -> SlotCells:
        return self._cache

    @override
    def run(self, plan: StepPlan) -> StepResult:
        """Run one step. Its duration is that of the decode and of a kept state, without the draws.

        Raises:
            EngineFault: the model can no longer be trusted.
            ValueError: the plan is invalid.
        """
        if self._best:
            self._best.prepare(plan)
        return self._run_parts(plan) if self._in_parts and not plan.drafted else self._run(plan)

    def _run_parts(self, plan: StepPlan) -> StepResult:
        """Run a step by one call to llama.cpp for each weight pass, because rows of one call share their depth.

        On a device that cannot abort, an abort waits for one pass. Draft tokens make rows of unlike length, which
        llama.cpp cuts into fewer passes.
        """
        seconds = 0.0
        results: list[StepResult] = []
        for part in plan.weight_passes(self._idle_rows.bridge):
            result = StepResult(Outcome.ABORTED, (), 0.0) if self._context.aborted else self._run(part)
            seconds += result.seconds
            if result.outcome is Outcome.ABORTED:
                self._undo(plan)
                return result._replace(seconds=seconds)
            if result.outcome is Outcome.NO_ROOM and not results:
                return result
            if result.outcome is Outcome.NO_ROOM:  # parts before it have drawn, which cannot be undone
                raise EngineFault("llama.cpp finds no room in the cells of a slot", code="decode_failed")
            results.append(result)
        if len(results) == 1:
            return results[0]
        draws = tuple(draw for result in results for draw in result.draws)
        scores = tuple(score for result in results for score in result.scores)
        return StepResult(Outcome.DONE, draws, seconds, scores, sum(result.whole_rows for result in results))

    def _run(self, plan: StepPlan) -> StepResult:
        """Run one step by one call to llama.cpp."""
        idle = self._fill(plan)
        self._context.use_adapters(plan.adapters)
        began = time.perf_counter()
        if plan.drafted and self._model.traits.drops_steps:
            self._cache.keep(plan.chunks[0].seq_id)
        outcome = self._context.decode(self._batch, abortable=self._may_abort(plan))
        seconds = time.perf_counter() - began
        self._idle_rows.drop(idle)
        if outcome is Outcome.ABORTED:
            self._undo(plan)
        if outcome is not Outcome.DONE:
            return StepResult(outcome, (), seconds)
        return self._read(plan, seconds)

    @override
    def abort(self) -> None:
        self._context.abort()

    @override
    def arm(self) -> None:
        self._context.arm()

    @override
    def close(self, sequence: Sequence) -> None:
        if self._best:
            self._best.forget(sequence)
        self._drawer.forget(sequence)

    def _fill(self, plan: StepPlan) -> list[IdleRow]:
        """Write the plan to the batch. Return the idle rows that are in it, too."""
        self._batch.clear()
        chunks = plan.chunks
        if plan.tokens > len(chunks) or not plan.decode:
            for chunk in chunks:
                self._add(chunk)
        else:
            self._batch.add_rows(
                [chunk.sequence.tokens[chunk.start] for chunk in chunks],
                seq_ids=[chunk.seq_id for chunk in chunks],
                positions=[chunk.start for chunk in chunks],
                outputs=[chunk.sample or chunk.score for chunk in chunks],
            )
        return self._idle_rows.add(chunks, self._batch) if plan.decode else []

    def _add(self, chunk: Chunk) -> None:
        last = self._batch.add(chunk.tokens, seq_id=chunk.seq_id, start=chunk.start, output=chunk.sample)
        row = last - len(chunk.draft)
        self._batch.ask(range(row, last))
        self._batch.ask(range(row + 1 - chunk.count, row + 1 - chunk.count + len(chunk.scored)))

    def _may_abort(self, plan: StepPlan) -> bool:
        """Return whether an abort would leave other sequences as they are.

        llama.cpp keeps the recurrent states of a step side by side, and moves those of others out of the way within it.
        """
        return len(plan.chunks) == 1 or not self._model.traits.has_state

    def _undo(self, plan: StepPlan) -> None:
        """Drop the cells of the physical batches that an aborted step finished."""
        for chunk in plan.chunks:
            self._cache.remove(Removal(chunk.seq_id, chunk.start if self._model.traits.can_trim else 0))

    def _read(self, plan: StepPlan, seconds: float) -> StepResult:
        """Return the scores and draws of a computed plan."""
        if not plan.drafted and (plan.decode or not any(chunk.score for chunk in plan.chunks)):
            return self._read_rows([chunk.sequence for chunk in plan.chunks if chunk.sample], seconds)
        scores, draws = [], []
        rows = sum([chunk.sample + len(chunk.scored) for chunk in plan.chunks]) + plan.drafted
        outputs = iter(self._drawer.outputs(self._outputs_of(rows), rows) if rows else ())
        for chunk in plan.chunks:
            if chunk.score:
                scores.append(self._drawer.scores(chunk, outputs))
            if chunk.draft:
                draws.append(self._drawer.draws(chunk, list(islice(outputs, 1 + len(chunk.draft)))))
            elif chunk.sample:
                draws.append(tuple(self._drawer.draw([chunk.sequence], next(outputs))))
        return StepResult(Outcome.DONE, tuple(draws), seconds, tuple(scores), self._whole(rows))

    def _read_rows(self, sequences: list[Sequence], seconds: float) -> StepResult:
        """Return the draws of a step with one row for each of these sequences."""
        rows = len(sequences)
        drawn = self._drawer.draw_rows(sequences, self._outputs_of(rows)) if rows else []
        return StepResult(Outcome.DONE, tuple(zip(drawn, strict=True)), seconds, whole_rows=self._whole(rows))

    def _whole(self, rows: int) -> int:
        """Return how many of the last step's rows were copied whole."""
        return 0 if self._best and self._best.given else rows

    def _outputs_of(self, rows: int) -> OutputsOf:
        """Return the outputs of the last step, which has so many."""
        if self._best and self._best.given:
            ids, best = self._best.read(rows)
            return lambda some: outputs_of_best(ids[some], best[some])
        logits = self._context.logits(rows)
        return lambda some: outputs_of_all(logits[some])


def _draw_threads(model: LlamaModel) -> int:
    """Return the number of threads that draw: several where devices compute all layers, while the host's cores wait."""
    return max(1, min(_MOST_DRAW_THREADS, usable_cores() - 1)) if model.fully_offloaded else 1


def _open_context(
    model: LlamaModel, config: EngineConfig, resources: ExitStack
) -> tuple[LlamaContext, BestTokens | None]:
    """Return a context, and its samplers on the device if it has some. `resources` closes them."""
    cells = model.info.cells if config.kv_unified else all_cells(config.slots, model.info.context)
    memory = model.memory
    params = context_params(
        config, cells, model.attention, full_windows=memory.full_windows, snapshots=memory.snapshots
    )
    purpose = f"{config.slots} slots of {cells // config.slots} tokens"
    if model.backend_sampling is False:
        return resources.enter_context(LlamaContext(model, config, params, purpose=purpose)), None
    samplers = resources.enter_context(closing(TopKSamplers(config.slots, model.info.vocabulary)))
    samplers.put_into(params)
    context = resources.enter_context(LlamaContext(model, config, params, purpose=purpose))
    if samplers.supported:
        tokens = model.info.vocabulary, model.end_tokens, model.suppressed_tokens
        return context, BestTokens(context, samplers, config.slots, *tokens)
    logger.warning("backend sampling is off: the device of the output layer cannot select the best tokens")
    samplers.detach(context.set_sampler)
    return context, None
