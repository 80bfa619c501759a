"""Computes embeddings and relevance scores with a context of its own."""

import logging
import time
from contextlib import ExitStack
from dataclasses import replace
from typing import Self

import llama_cpp
from typing_extensions import override

from engine.config import EngineConfig
from engine.core.embedding.step import (
    Embedder,
    EmbeddingChunk,
    EmbeddingJob,
    EmbeddingLimits,
    EmbeddingPlan,
    EmbeddingStepResult,
)
from engine.core.step import Outcome
from engine.errors import EngineFault, LoadError
from engine.llama import devices, metadata
from engine.llama.attention import AUTO, NO_FLASH
from engine.llama.batch import Batch
from engine.llama.context import LlamaContext
from engine.llama.embedding.pooling import pooling_of
from engine.llama.memory.buffers import HOST, Buffers
from engine.llama.memory.cell_types import relative_size
from engine.llama.model import LlamaModel
from engine.request import EmbeddingRequest

logger = logging.getLogger(__name__)

_TEXTS = 16
_LARGEST_STEP = 512
_SMALLEST_STEP = 64
_LOGITS_BYTES = 2**27
"""llama.cpp computes the logits of every row, too. They bound the rows of a step where the vocabulary is large."""
_LONG_STEP = 1024
"""Rows. A step of so many is so long that a report at each node of the graph takes little of its time."""
_LONGEST_WHOLE = 8192
"""Tokens. A text that cannot be split takes memory for one step with all its tokens."""
_FIRST_CELLS = 2048
"""Cells of the first embedder of a model that also generates. Few texts are longer."""


def embedding_limits(model: LlamaModel) -> EmbeddingLimits:
    """Return the limits of an embedder of this model.

    The text of a causal model can be split into steps. Other models attend in both directions, so a text is one step.
    """
    context = min(model.info.context, model.info.trained_context)
    if model.info.generates or (model.causal and _has_cells(model)):
        fitting = max(_SMALLEST_STEP, _LOGITS_BYTES // (4 * model.info.vocabulary))
        rows = min(_LARGEST_STEP, fitting, context)
        smallest = min(_FIRST_CELLS, context) if model.info.generates else context
        return EmbeddingLimits(rows, context, smallest, _TEXTS, longest=context, splits=True)
    longest = min(context, _LONGEST_WHOLE)
    return EmbeddingLimits(longest, longest, longest, _TEXTS, longest=longest, splits=False)


def _has_cells(model: LlamaModel) -> bool:
    """Return whether llama.cpp keeps a KV cache for a model. It does not for a model that cannot be causal."""
    least = EmbeddingLimits(rows=1, cells=1, smallest=1, texts=1, longest=1, splits=True)
    with _open_context(model, EngineConfig(model=""), least, llama_cpp.LLAMA_POOLING_TYPE_NONE) as context:
        return context.has_cache


class LlamaEmbedder(Embedder):
    """Owns a context, and pools its outputs as the model needs it."""

    def __init__(self, model: LlamaModel, config: EngineConfig, limits: EmbeddingLimits) -> None:
        """Create the context, which allocates memory for `limits`. `model` must outlive the embedder.

        Raises:
            LoadError: llama.cpp cannot create the context, usually because memory is short.
        """
        self.on_progress = lambda: None
        self._limits = limits
        self._pooling = pooling_of(model)
        self._vocabulary = model.info.vocabulary
        self._batch = Batch(limits.rows, model.info.vocabulary)
        self._context = _open_context(model, config, limits, self._pooling.type)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.shut_down()

    @override
    def shut_down(self) -> None:
        self._context.close()

    @property
    def buffers(self) -> Buffers:
        """Bytes that the context allocated."""
        return self._context.buffers

    def probe(self) -> None:
        """Embed a small text to prove that this machine can run the model. A machine that cannot may die here.

        Raises:
            LoadError: the result is not finite.
        """
        tokens = [at % self._vocabulary for at in range(min(self._limits.longest, _SMALLEST_STEP))]
        (text,) = EmbeddingJob(0, EmbeddingRequest(id="probe", inputs=(tuple(tokens),)), [tokens]).waiting
        text.seq_id = 0
        plan = (EmbeddingChunk(text, len(tokens)),)
        self._fill(plan)
        self._context.probe(self._batch)
        if None in self._pool(plan):
            raise LoadError(f"this machine cannot run the model: a step of {len(tokens)} tokens gave no numbers")

    @override
    def drop(self, seq_id: int) -> None:
        self._pooling.drop(seq_id)
        self._context.remove(seq_id, 0)

    @override
    def run(self, chunks: EmbeddingPlan) -> EmbeddingStepResult:
        self._fill(chunks)
        began = time.perf_counter()
        rows = sum(chunk.count for chunk in chunks)
        outcome = self._context.decode(self._batch, on_node=self.on_progress if rows >= _LONG_STEP else None)
        seconds = time.perf_counter() - began
        if outcome is Outcome.ABORTED:
            return EmbeddingStepResult(outcome, (), seconds)
        if outcome is Outcome.NO_ROOM:
            raise EngineFault("llama.cpp found no room for texts within the limits", code="decode_failed")
        return EmbeddingStepResult(outcome, self._pool(chunks), seconds)

    @override
    def abort(self) -> None:
        self._context.abort()

    @override
    def arm(self) -> None:
        self._context.arm()

    def _fill(self, chunks: EmbeddingPlan) -> None:
        """Fill the batch, with an output for each row."""
        self._batch.clear()
        for chunk in chunks:
            tokens = chunk.text.tokens[chunk.start : chunk.start + chunk.count]
            last = self._batch.add(tokens, seq_id=chunk.seq_id, start=chunk.start, output=True)
            self._batch.ask(range(last + 1 - len(tokens), last))

    def _pool(self, chunks: EmbeddingPlan) -> tuple[bytes | None, ...]:
        """Return the numbers of the finished texts, and drop these."""
        numbers = tuple(self._pooling.pool(self._context, chunks))
        for chunk in chunks:
            if chunk.last:
                self.drop(chunk.seq_id)
        return numbers


class EmbedderFactory:
    """Opens the embedders of a model that also generates, each with more cells than the one before."""

    def __init__(self, model: LlamaModel, config: EngineConfig, limits: EmbeddingLimits, stack: ExitStack) -> None:
        """Open none. `limits` are those of the largest embedder; `stack` closes each of them."""
        self._model = model
        self._config = config
        self._limits = limits
        self._stack = stack
        memory = model.memory
        host = memory.buffers.cells.get(HOST, 0) / max(sum(memory.buffers.cells.values()), 1)
        # The cells of an embedder are f16.
        self._cell_bytes = host * memory.full_token_bytes / relative_size(config.kv_type_k, config.kv_type_v)
        outputs = 4 * limits.rows * (model.info.vocabulary + model.info.embedding_size)
        # Computed, and copied. The step of a slot, which is counted, too, has few outputs.
        self._step_bytes = memory.buffers.compute.get(HOST, 0) + 2 * outputs

    def open(self, cells: int) -> LlamaEmbedder:
        """Open an embedder with so many cells, which may take seconds.

        Raises:
            LoadError: memory is short.
        """
        self._check_memory(cells)
        limits = replace(self._limits, cells=cells)
        embedder = self._stack.enter_context(LlamaEmbedder(self._model, self._config, limits))
        logger.info("an embedder with %d cells takes %.1f MiB", cells, sum(embedder.buffers.all.values()) / 2**20)
        return embedder

    def _check_memory(self, cells: int) -> None:
        """Check that host memory holds the cells and a step, beside the weights.

        The system may grant more, and end the process as it uses them.

        Raises:
            LoadError: it does not.
        """
        needed = cells * self._cell_bytes + self._step_bytes
        weights = min(self._model.weights.get(HOST, 0), devices.mapped_memory())
        free = max(0, devices.available_memory() - weights)
        if needed > free:
            raise LoadError(
                f"an embedder for texts of {cells} tokens needs {needed / 2**20:.0f} MiB of memory, and there are "
                f"{free / 2**20:.0f}"
            )


def _open_context(model: LlamaModel, config: EngineConfig, limits: EmbeddingLimits, pooling: int) -> LlamaContext:
    params = llama_cpp.llama_context_default_params()
    params.embeddings = True
    params.pooling_type = pooling
    params.n_ctx = limits.cells
    params.n_batch = params.n_ubatch = limits.rows
    params.n_seq_max = limits.texts
    params.flash_attn_type = (AUTO if metadata.takes_flash(model.handle) else NO_FLASH).kind
    params.kv_unified = True  # texts share the cells, so that a long one may take them all
    purpose = f"an embedder for texts of {limits.cells} tokens"
    hide_from = logging.WARNING  # llama.cpp warns that the pooling differs from the file's
    return LlamaContext(model, config, params, purpose=purpose, hide_from=hide_from)
