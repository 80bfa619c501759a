"""Pooling: from the outputs of a step to the numbers of each text that it finishes."""

import ctypes
from collections.abc import Iterator
from typing import Any, Protocol, TypeAlias

import llama_cpp
import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from engine.core.embedding.step import EmbeddingChunk, EmbeddingPlan
from engine.errors import EngineFault
from engine.llama.context import LlamaContext
from engine.llama.model import LlamaModel
from engine.llama.views import view

_Rows: TypeAlias = NDArray[np.float32]
_Sum: TypeAlias = NDArray[np.float64]


class Pooling(Protocol):
    """Pools the outputs of texts, which may be computed in several steps."""

    type: int
    """llama.cpp's number of the pooling type that the context needs."""

    def pool(self, context: LlamaContext, chunks: EmbeddingPlan) -> Iterator[bytes | None]:
        """Yield the numbers of each text that the last step finished, in the plan's order; None if one is not finite.

        Raises:
            EngineFault: the context has no outputs.
        """

    def drop(self, seq_id: int) -> None:
        """Forget a text."""


def pooling_of(model: LlamaModel) -> Pooling:
    """Return the pooling of a model."""
    if model.info.ranks:
        return ScorePooling(llama_cpp.llama_model_n_cls_out(model.handle))
    return VectorPooling(model.pooling, model.info.embedding_size)


class VectorPooling(Pooling):
    """Makes a unit vector of each text.

    llama.cpp would pool each step alone, and the mean of a text of two steps would be that of the second. A vector is
    the mean of its text's rows, the first row or the last one; without a pooling type it is the mean. All vectors are
    scaled to length 1, like OpenAI's.
    """

    def __init__(self, pooling: int, size: int) -> None:
        """Pool vectors of `size` numbers by llama.cpp's number of a type; 0 or less is the mean."""
        self.type = llama_cpp.LLAMA_POOLING_TYPE_NONE
        self._pooling = pooling
        self._size = size
        self._sums: dict[int, _Sum] = {}

    @override
    def pool(self, context: LlamaContext, chunks: EmbeddingPlan) -> Iterator[bytes | None]:
        address = _address_of(llama_cpp.llama_get_embeddings(context.handle))
        if not address:
            raise EngineFault("llama.cpp gave no embeddings", code="engine_failed")
        rows = view(address, (sum(chunk.count for chunk in chunks), self._size), "=f4")
        for chunk in chunks:
            own, rows = rows[: chunk.count], rows[chunk.count :]
            self._gather(chunk, own)
            if chunk.last:
                yield _unit(self._sums[chunk.seq_id])

    @override
    def drop(self, seq_id: int) -> None:
        self._sums.pop(seq_id, None)

    def _gather(self, chunk: EmbeddingChunk, rows: _Rows) -> None:
        """Add rows to a text's vector. A mean is kept as a sum, because only its direction counts."""
        match self._pooling:
            case llama_cpp.LLAMA_POOLING_TYPE_LAST:
                self._sums[chunk.seq_id] = rows[-1].astype(np.float64)
            case llama_cpp.LLAMA_POOLING_TYPE_CLS:
                self._sums.setdefault(chunk.seq_id, rows[0].astype(np.float64))
            case _:
                self._sums[chunk.seq_id] = self._sums.get(chunk.seq_id, 0.0) + rows.sum(axis=0, dtype=np.float64)


class ScorePooling(Pooling):
    """Reads the scores that a re-ranker's classifier computed for each text.

    The classifier reads one token: the first one, or the last one of a causal model. So the step that ends a text has
    its scores.
    """

    def __init__(self, classes: int) -> None:
        self.type = llama_cpp.LLAMA_POOLING_TYPE_RANK
        self._classes = classes

    @override
    def pool(self, context: LlamaContext, chunks: EmbeddingPlan) -> Iterator[bytes | None]:
        return (self._scores(context, chunk.seq_id) for chunk in chunks if chunk.last)

    @override
    def drop(self, seq_id: int) -> None:
        """Do nothing, because nothing is kept between steps."""

    def _scores(self, context: LlamaContext, seq_id: int) -> bytes | None:
        address = _address_of(llama_cpp.llama_get_embeddings_seq(context.handle, seq_id))
        if not address:
            raise EngineFault("llama.cpp gave no scores", code="engine_failed")
        scores = view(address, (self._classes,), "=f4")
        return scores.astype("<f4").tobytes() if np.isfinite(scores).all() else None


def _address_of(numbers: Any) -> int | None:  # noqa: ANN401 (a pointer of the bindings)
    return ctypes.cast(numbers, ctypes.c_void_p).value


def _unit(vector: _Sum) -> bytes | None:
    """Return a vector scaled to length 1, as little-endian float32; None if it has no direction."""
    length = np.linalg.norm(vector)
    if not np.isfinite(length) or not length:
        return None
    return (vector / length).astype("<f4").tobytes()
