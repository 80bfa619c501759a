"""Texts that run together in an embedder, and what llama.cpp itself computes for one in one pass."""

from collections.abc import Callable

import llama_cpp
import numpy as np
from numpy.typing import NDArray

from engine.core.embedding.step import EmbeddingChunk, EmbeddingJob, EmbeddingText
from engine.core.step import Outcome
from engine.llama.embedding.embedder import LlamaEmbedder
from engine.llama.model import LlamaModel
from engine.request import EmbeddingRequest

Vector = NDArray[np.float32]


def texts_of(*inputs: list[int]) -> list[EmbeddingText]:
    """Return texts of these tokens, each with a sequence of its own."""
    job = EmbeddingJob(1, EmbeddingRequest(id="test", inputs=tuple(map(tuple, inputs))), list(inputs))
    texts = list(job.waiting)
    for seq_id, text in enumerate(texts):
        text.seq_id = seq_id
    return texts


def embed(embedder: LlamaEmbedder, *inputs: list[int], rows: int = 1000) -> list[Vector]:
    """Return the vectors of texts that run together, each with at most so many rows in a step."""
    running, vectors = texts_of(*inputs), dict[int, Vector]()
    while left := [text for text in running if text.pending]:
        chunks = tuple(EmbeddingChunk(text, min(text.pending, rows)) for text in left)
        result = embedder.run(chunks)
        assert result.outcome is Outcome.DONE
        for chunk, vector in zip((chunk for chunk in chunks if chunk.last), result.vectors, strict=True):
            assert vector is not None
            vectors[chunk.seq_id] = np.frombuffer(vector, "<f4")
        for chunk in chunks:
            chunk.text.computed += chunk.count
    return [vectors[text.seq_id] for text in running]


def computed_by_llama_cpp(
    model: LlamaModel, tokens: list[int], pooling: int, read: Callable[[llama_cpp.llama_context_p], Vector]
) -> Vector:
    """Return what `read` finds in a context that has computed the tokens in one pass."""
    params = llama_cpp.llama_context_default_params()
    params.embeddings, params.pooling_type = True, pooling
    params.n_ctx = params.n_batch = params.n_ubatch = 512
    context = llama_cpp.llama_init_from_model(model.handle, params)
    batch = llama_cpp.llama_batch_init(len(tokens), 0, 1)
    try:
        batch.n_tokens = len(tokens)
        for row, token in enumerate(tokens):
            batch.token[row], batch.pos[row], batch.n_seq_id[row], batch.logits[row] = token, row, 1, 1
            batch.seq_id[row][0] = 0
        assert llama_cpp.llama_decode(context, batch) == 0
        return read(context).copy()
    finally:
        llama_cpp.llama_batch_free(batch)
        llama_cpp.llama_free(context)
