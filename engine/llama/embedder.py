"""Texts to vectors: a context of its own over the model's weights, which pools what comes out of it."""

import logging
import time
from contextlib import ExitStack
from typing import Self, TypeAlias

import llama_cpp
import numpy as np
from numpy.typing import NDArray

from engine.config import EngineConfig
from engine.core.embedding.step import EmbeddingChunk, EmbeddingLimits, EmbeddingPass, EmbeddingPlan
from engine.core.step import Outcome
from engine.errors import EngineFault, LoadError
from engine.llama.abort import AbortFlag
from engine.llama.batch import Batch
from engine.llama.cpu import physical_cores
from engine.llama.log_bridge import first_cause, keep_complaints
from engine.llama.model import LlamaModel

logger = logging.getLogger(__name__)

_TEXTS = 16
_LARGEST_PASS = 512
_SMALLEST_PASS = 64
_LOGITS_BYTES = 2**27
"""llama.cpp computes the logits of every row, too. They bound the rows of a pass where the vocabulary is large."""
_LONGEST_WHOLE = 8192
"""Tokens. Texts that cannot be split take memory for one pass over the longest of them."""
_DONE, _ABORTED = 0, 2  # what llama_decode returns

_Rows: TypeAlias = NDArray[np.float32]
_Sum: TypeAlias = NDArray[np.float64]


def embedding_limits(model: LlamaModel) -> EmbeddingLimits:
    """What an embedder of this model can take.

    A causal model's text may be cut into passes. Others read a text in both directions, so it is computed whole.
    """
    context = min(model.info.context, model.info.trained_context)
    if model.info.generates or (model.causal and _has_cells(model)):
        fitting = max(_SMALLEST_PASS, _LOGITS_BYTES // (4 * model.info.vocabulary))
        rows = min(_LARGEST_PASS, fitting, context)
        return EmbeddingLimits(rows, context, _TEXTS, longest=context, splits=True)
    longest = min(context, _LONGEST_WHOLE)
    return EmbeddingLimits(longest, longest, _TEXTS, longest=longest, splits=False)


def _has_cells(model: LlamaModel) -> bool:
    """Whether llama.cpp keeps a KV cache for a model; it keeps none where its kind cannot be causal."""
    smallest = EmbeddingLimits(rows=1, cells=1, texts=1, longest=1, splits=True)
    context = _open_context(model, EngineConfig(model=""), smallest, AbortFlag())
    try:
        return bool(llama_cpp.llama_get_memory(context))
    finally:
        llama_cpp.llama_free(context)


class LlamaEmbedder:
    """Owns a C context, and frees it once. See `engine.core.embedding.step.Embedder`.

    It pools by itself, because llama.cpp pools each pass alone: the mean of a text that took two would be that of its
    end. As the model's file says, a vector is the mean of its text's rows, the first one or the last; the mean where
    the file says nothing. All are scaled to length 1, as OpenAI's are.
    """

    def __init__(self, model: LlamaModel, config: EngineConfig, limits: EmbeddingLimits) -> None:
        """Make the context, which takes memory for `limits`. `model` must outlive the embedder.

        Raises `LoadError` where llama.cpp refuses, for want of memory above all.
        """
        self._limits = limits
        self._pooling = model.pooling
        self._size = model.info.embedding_size
        self._vocabulary = model.info.vocabulary
        self._abort = AbortFlag()
        self._batch = Batch(limits.rows, model.info.vocabulary)
        self._sums: dict[int, _Sum] = {}
        with ExitStack() as resources:
            self._context = _open_context(model, config, limits, self._abort)
            resources.callback(llama_cpp.llama_free, self._context)
            self._memory = llama_cpp.llama_get_memory(self._context)
            self._resources = resources.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.shut_down()

    def shut_down(self) -> None:
        """Free everything. Repeatable; no other method may be called after it."""
        self._resources.close()

    def probe(self) -> None:
        """Prove that this machine can run the model: embed a small text. A machine that cannot may die here.

        Raises `LoadError` where what comes out is no vector.
        """
        tokens = [at % self._vocabulary for at in range(min(self._limits.longest, _SMALLEST_PASS))]
        self._batch.clear()
        self._batch.add(tokens, seq_id=0, start=0, output=True)
        status = self._decode()
        if status != _DONE or not np.isfinite(self._rows(len(tokens))).all():
            raise LoadError(f"this machine cannot run the model: a pass failed (status {status})")
        self.drop(0)

    def drop(self, seq_id: int) -> None:
        """Forget a text."""
        self._sums.pop(seq_id, None)
        if self._memory and not llama_cpp.llama_memory_seq_rm(self._memory, seq_id, -1, -1):
            raise EngineFault("llama.cpp could not drop a sequence", code="engine_failed")

    def run(self, chunks: EmbeddingPlan) -> EmbeddingPass:
        """Make one pass. Raises `EngineFault` when the model can no longer be trusted."""
        self._batch.clear()
        for chunk in chunks:
            tokens = chunk.text.tokens[chunk.start : chunk.start + chunk.count]
            self._batch.add(tokens, seq_id=chunk.seq_id, start=chunk.start, output=True)
        began = time.perf_counter()
        status = self._decode()
        seconds = time.perf_counter() - began
        if status == _ABORTED:
            return EmbeddingPass(Outcome.ABORTED, (), seconds)
        if status != _DONE:
            raise EngineFault(f"llama.cpp could not embed (status {status})", code="decode_failed")
        return EmbeddingPass(Outcome.DONE, self._pool(chunks), seconds)

    def abort(self) -> None:
        """From any thread: end the pass that runs now, or the next one if `arm` was called since the last pass."""
        self._abort.set()

    def arm(self) -> None:
        """Forget an earlier `abort`."""
        self._abort.clear()

    def _decode(self) -> int:
        """What `llama_decode` returns. Its complaint of an abort is no news and is not logged."""
        with keep_complaints(logging.WARNING) as complaints:
            self._batch.ask(range(int(self._batch.c.n_tokens)))  # every row gives its embedding
            status = int(llama_cpp.llama_decode(self._context, self._batch.c))
            llama_cpp.llama_synchronize(self._context)  # a GPU may still be at work
        if status != _ABORTED:
            for complaint in complaints:
                logger.warning("llama_decode: %s", complaint)
        return status

    def _rows(self, count: int) -> _Rows:
        pointer = llama_cpp.llama_get_embeddings(self._context)
        if not pointer:
            raise EngineFault("llama.cpp gave no embeddings", code="engine_failed")
        return np.ctypeslib.as_array(pointer, (count, self._size))

    def _pool(self, chunks: EmbeddingPlan) -> tuple[bytes | None, ...]:
        rows = self._rows(sum(chunk.count for chunk in chunks))
        vectors = []
        for chunk in chunks:
            own, rows = rows[: chunk.count], rows[chunk.count :]
            self._gather(chunk, own)
            if chunk.last:
                vectors.append(_unit(self._sums[chunk.seq_id]))
                self.drop(chunk.seq_id)
        return tuple(vectors)

    def _gather(self, chunk: EmbeddingChunk, rows: _Rows) -> None:
        """Keep of a text's rows what its vector needs. A mean is kept as a sum: only its direction counts."""
        match self._pooling:
            case llama_cpp.LLAMA_POOLING_TYPE_LAST:
                self._sums[chunk.seq_id] = rows[-1].astype(np.float64)
            case llama_cpp.LLAMA_POOLING_TYPE_CLS:
                self._sums.setdefault(chunk.seq_id, rows[0].astype(np.float64))
            case _:
                self._sums[chunk.seq_id] = self._sums.get(chunk.seq_id, 0.0) + rows.sum(axis=0, dtype=np.float64)


def _unit(vector: _Sum) -> bytes | None:
    """A vector scaled to length 1, as float32 with the low byte first; None for one that has no direction."""
    length = np.linalg.norm(vector)
    if not np.isfinite(length) or not length:
        return None
    return (vector / length).astype("<f4").tobytes()


def _open_context(model: LlamaModel, config: EngineConfig, limits: EmbeddingLimits, abort: AbortFlag) -> int:
    threads = config.threads or physical_cores()
    params = llama_cpp.llama_context_default_params()
    params.embeddings = True
    params.pooling_type = llama_cpp.LLAMA_POOLING_TYPE_NONE
    params.n_ctx = limits.cells
    params.n_batch = params.n_ubatch = limits.rows
    params.n_seq_max = limits.texts
    params.n_threads, params.n_threads_batch = threads, config.threads_batch or threads
    params.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_AUTO
    params.kv_unified = True  # texts under way share the cells: a long one may take them all
    params.abort_callback, params.abort_callback_data = abort.callback, abort.data
    with keep_complaints(logging.WARNING) as complaints:  # it warns of any pooling that is not the file's
        context = llama_cpp.llama_init_from_model(model.handle, params)
    if not context:
        cause = first_cause(complaints[-1:])
        raise LoadError(f"an embedder for texts of {limits.longest} tokens cannot be made: {cause}")
    return int(context)
