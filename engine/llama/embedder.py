"""Computes embeddings with a context of its own, and pools the outputs."""

import logging
import time
from typing import Self, TypeAlias

import llama_cpp
import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from engine.config import EngineConfig
from engine.core.embedding.step import Embedder, EmbeddingChunk, EmbeddingLimits, EmbeddingPlan, EmbeddingStepResult
from engine.core.step import Outcome
from engine.errors import EngineFault, LoadError
from engine.llama.batch import Batch
from engine.llama.context import LlamaContext
from engine.llama.model import LlamaModel

_TEXTS = 16
_LARGEST_STEP = 512
_SMALLEST_STEP = 64
_LOGITS_BYTES = 2**27
"""llama.cpp computes the logits of every row, too. They bound the rows of a step where the vocabulary is large."""
_LONGEST_WHOLE = 8192
"""Tokens. A text that cannot be split takes memory for one step with all its tokens."""

_Rows: TypeAlias = NDArray[np.float32]
_Sum: TypeAlias = NDArray[np.float64]


def embedding_limits(model: LlamaModel) -> EmbeddingLimits:
    """Return the limits of an embedder of this model.

    The text of a causal model can be split into steps. Other models attend in both directions, so a text is one step.
    """
    context = min(model.info.context, model.info.trained_context)
    if model.info.generates or (model.causal and _has_cells(model)):
        fitting = max(_SMALLEST_STEP, _LOGITS_BYTES // (4 * model.info.vocabulary))
        rows = min(_LARGEST_STEP, fitting, context)
        return EmbeddingLimits(rows, context, _TEXTS, longest=context, splits=True)
    longest = min(context, _LONGEST_WHOLE)
    return EmbeddingLimits(longest, longest, _TEXTS, longest=longest, splits=False)


def _has_cells(model: LlamaModel) -> bool:
    """Return whether llama.cpp keeps a KV cache for a model. It does not for a model that cannot be causal."""
    smallest = EmbeddingLimits(rows=1, cells=1, texts=1, longest=1, splits=True)
    with _open_context(model, EngineConfig(model=""), smallest) as context:
        return context.has_cache


class LlamaEmbedder(Embedder):
    """Owns a context and pools its outputs.

    llama.cpp would pool each step alone, and the mean of a text of two steps would be that of the second. By the
    pooling type in the file a vector is the mean of its text's rows, the first row or the last one; without a type it
    is the mean. All vectors are scaled to length 1, like OpenAI's.
    """

    def __init__(self, model: LlamaModel, config: EngineConfig, limits: EmbeddingLimits) -> None:
        """Create the context, which allocates memory for `limits`. `model` must outlive the embedder.

        Raises:
            LoadError: llama.cpp cannot create the context, usually because memory is short.
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
        """Free the context. Repeatable; no other method may be called afterwards."""
        self._context.close()

    def probe(self) -> None:
        """Embed a small text to prove that this machine can run the model. A machine that cannot may die here.

        Raises:
            LoadError: the result is no vector.
        """
        tokens = [at % self._vocabulary for at in range(min(self._limits.longest, _SMALLEST_STEP))]
        self._batch.clear()
        self._add(tokens, seq_id=0, start=0)
        self._context.probe(self._batch)
        if not np.isfinite(self._rows(len(tokens))).all():
            raise LoadError(f"this machine cannot run the model: a step of {len(tokens)} tokens gave no vectors")
        self.drop(0)

    @override
    def drop(self, seq_id: int) -> None:
        self._sums.pop(seq_id, None)
        self._context.remove(seq_id, 0)

    @override
    def run(self, chunks: EmbeddingPlan) -> EmbeddingStepResult:
        self._batch.clear()
        for chunk in chunks:
            tokens = chunk.text.tokens[chunk.start : chunk.start + chunk.count]
            self._add(tokens, seq_id=chunk.seq_id, start=chunk.start)
        began = time.perf_counter()
        outcome = self._context.decode(self._batch)
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

    def _add(self, tokens: list[int], *, seq_id: int, start: int) -> None:
        """Add tokens of one text, with an output for each row."""
        last = self._batch.add(tokens, seq_id=seq_id, start=start, output=True)
        self._batch.ask(range(last + 1 - len(tokens), last))

    def _rows(self, count: int) -> _Rows:
        pointer = llama_cpp.llama_get_embeddings(self._context.handle)
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
        """Add rows to a text's vector. A mean is kept as a sum, because only its direction counts."""
        match self._pooling:
            case llama_cpp.LLAMA_POOLING_TYPE_LAST:
                self._sums[chunk.seq_id] = rows[-1].astype(np.float64)
            case llama_cpp.LLAMA_POOLING_TYPE_CLS:
                self._sums.setdefault(chunk.seq_id, rows[0].astype(np.float64))
            case _:
                self._sums[chunk.seq_id] = self._sums.get(chunk.seq_id, 0.0) + rows.sum(axis=0, dtype=np.float64)


def _unit(vector: _Sum) -> bytes | None:
    """Return a vector scaled to length 1, as little-endian float32; None if it has no direction."""
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
    params.kv_unified = True  # texts share the cells, so that a long one may take them all
    purpose = f"an embedder for texts of {limits.longest} tokens"
    hide_from = logging.WARNING  # llama.cpp warns that the pooling differs from the file's
    return LlamaContext(model, config, params, purpose=purpose, hide_from=hide_from)
