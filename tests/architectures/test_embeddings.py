"""Embeddings of every architecture that generates: the same vectors in chunks, beside others, and after an abort."""

from collections.abc import Iterator
from contextlib import ExitStack

import numpy as np
import pytest

from engine.config import EngineConfig
from engine.core.embedding.step import EmbeddingChunk
from engine.core.step import Outcome
from engine.llama.embedding.embedder import LlamaEmbedder, embedding_limits
from engine.llama.model import LlamaModel
from tests.architectures.families import FAMILIES, quick_for_some
from tests.architectures.models import family_model
from tests.architectures.prompts import prompt
from tests.engine.llama.embedding.running import embed, texts_of

ROUNDING = 0.01


@pytest.fixture(scope="module", params=quick_for_some(family.name for family in FAMILIES))
def embedder(request: pytest.FixtureRequest) -> Iterator[LlamaEmbedder]:
    config = EngineConfig(model=str(family_model(request.param)), slots=2, context=256, threads=1)
    with ExitStack() as stack:
        model = stack.enter_context(LlamaModel(config, lambda _share: None))
        yield stack.enter_context(LlamaEmbedder(model, config, embedding_limits(model)))


def test_a_vector_does_not_depend_on_chunks_and_neighbours(embedder: LlamaEmbedder) -> None:
    inputs = [prompt(seed, 60 + 20 * seed) for seed in range(3)]
    alone = [embed(embedder, one)[0] for one in inputs]
    for vector in alone:
        assert np.linalg.norm(vector) == pytest.approx(1.0, abs=1e-5)
    assert abs(alone[0] @ alone[1]) < 1 - 10 * ROUNDING
    for got in (embed(embedder, *inputs), embed(embedder, *inputs, rows=17)):
        np.testing.assert_allclose(got, alone, atol=ROUNDING)


def test_a_text_that_left_in_the_middle_leaves_nothing(embedder: LlamaEmbedder) -> None:
    expected = embed(embedder, prompt(10, 80))
    [text] = texts_of(prompt(11, 80))
    embedder.run((EmbeddingChunk(text, 30),))
    text.computed = 30
    embedder.abort()
    assert embedder.run((EmbeddingChunk(text, 30),)).outcome is Outcome.ABORTED
    embedder.arm()
    embedder.drop(0)
    np.testing.assert_allclose(embed(embedder, prompt(10, 80)), expected, atol=ROUNDING)
