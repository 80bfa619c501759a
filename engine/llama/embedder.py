"""Texts to vectors: a context of its own over the model's weights, which pools what comes out of it."""

import logging
import time
from typing import Self, TypeAlias

import llama_cpp
import numpy as np
from numpy.typing import NDArray

from engine.config import EngineConfig
from engine.core.embedding.step import EmbeddingChunk, EmbeddingLimits, EmbeddingPass
from engine.core.step import Outcome
from engine.errors import EngineFault, LoadError
from engine.llama.batch import Batch
from engine.llama.context import LlamaContext
from engine.llama.model import LlamaModel

_TEXTS = 16
_LARGEST_PASS = 512
_SMALLEST_PASS = 64
_LOGITS_BYTES = 2**27
"""llama.cpp computes the logits of every row, too. They bound the rows of a pass where the vocabulary is large."""
_LONGEST_WHOLE = 8192
"""Tokens. Texts that cannot be split take memory for one pass over the longest of them."""

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
    with _open_context(model, EngineConfig(model=""), smallest) as context:
        return context.has_cache


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
        self._batch = Batch(limits.rows, model.info.vocabulary)
        self._sums: dict[int, _Sum] = {}
        self._context = _open_context(model, config, limits)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.shut_down()

    def shut_down(self) -> None:
        """Free everything. Repeatable; no other method may be called after it."""
        self._context.close()

    def probe(self) -> None:
        """Prove that this machine can run the model: embed a small text. A machine that cannot may die here.

        Raises `LoadError` where what comes out is no vector.
        """
        tokens = [at % self._vocabulary for at in range(min(self._limits.longest, _SMALLEST_PASS))]
        self._batch.clear()
        self._add(tokens, seq_id=0, start=0)
        self._context.probe(self._batch)
        if not np.isfinite(self._rows(len(tokens))).all():
            raise LoadError(f"this machine cannot run the model: a pass of {len(tokens)} tokens gave no vectors")
        self.drop(0)

    def drop(self, seq_id: int) -> None:
        """Forget a text."""
        self._sums.pop(seq_id, None)
        self._context.remove(seq_id, 0)

    def run(self, chunks: tuple[EmbeddingChunk, ...]) -> EmbeddingPass:
        """Make one pass. Raises `EngineFault` when the model can no longer be trusted."""
        self._batch.clear()
        for chunk in chunks:
            tokens = chunk.text.tokens[chunk.start : chunk.start + chunk.count]
            self._add(tokens, seq_id=chunk.seq_id, start=chunk.start)
        began = time.perf_counter()
        outcome = self._context.decode(self._batch)
        seconds = time.perf_counter() - began
        if outcome is Outcome.ABORTED:
            return EmbeddingPass(outcome, (), seconds)
        if outcome is Outcome.NO_ROOM:
            raise EngineFault("llama.cpp found no room for texts within the limits", code="decode_failed")
        return EmbeddingPass(outcome, self._pool(chunks), seconds)

    def abort(self) -> None:
        """From any thread: end the pass that runs now, or the next one if `arm` was called since the last pass."""
        self._context.abort()

    def arm(self) -> None:
        """Forget an earlier `abort`."""
        self._context.arm()

    def _add(self, tokens: list[int], *, seq_id: int, start: int) -> None:
        """Add tokens of one text, with an output for each row."""
        last = self._batch.add(tokens, seq_id=seq_id, start=start, output=True)
        self._batch.ask(range(last + 1 - len(tokens), last))

    def _rows(self, count: int) -> _Rows:
        pointer = llama_cpp.llama_get_embeddings(self._context.handle)
        if not pointer:
            raise EngineFault("llama.cpp gave no embeddings", code="engine_failed")
        return np.ctypeslib.as_array(pointer, (count, self._size))

    def _pool(self, chunks: tuple[EmbeddingChunk, ...]) -> tuple[bytes | None, ...]:
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


def _open_context(model: LlamaModel, config: EngineConfig, limits: EmbeddingLimits) -> LlamaContext:
    params = llama_cpp.llama_context_default_params()
    params.embeddings = True
    params.pooling_type = llama_cpp.LLAMA_POOLING_TYPE_NONE
    params.n_ctx = limits.cells
    params.n_batch = params.n_ubatch = limits.rows
    params.n_seq_max = limits.texts
    params.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_AUTO
    params.kv_unified = True  # texts under way share the cells: a long one may take them all
    purpose = f"an embedder for texts of {limits.longest} tokens"
    hide_from = logging.WARNING  # llama.cpp warns that the pooling differs from the file's
    return LlamaContext(model, config, params, purpose=purpose, hide_from=hide_from)
