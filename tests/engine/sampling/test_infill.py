"""The sampler `infill`: llama.cpp's own, for few candidates, and only where the text may end."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import llama_cpp
import numpy as np
import pytest

from engine.config import EngineConfig
from engine.llama.model import LlamaModel
from engine.request import Sampling
from engine.sampling.candidates import Candidates, Logits
from engine.sampling.chain import SamplerChain
from engine.sampling.infill import MOST_CANDIDATES
from engine.sampling.resources import SamplerResources
from engine.sampling.sampler import SequenceSampler
from tests.engine.sampling.draws import next_token
from tests.models import model_path

CONTEXT = 256
EDITORS = Sampling(samplers=("top_k", "top_p", "infill"), top_k=40, top_p=0.99)
"""The sampling of llama.vim and llama.vscode."""


@pytest.fixture(scope="module")
def model() -> Iterator[LlamaModel]:
    config = EngineConfig(model=str(model_path()), slots=1, context=CONTEXT, threads=1)
    with LlamaModel(config, lambda _share: None) as loaded:
        yield loaded


def make(model: LlamaModel, sampling: Sampling) -> closing[SequenceSampler]:
    memory = Candidates(model.info.vocabulary)
    resources = SamplerResources(memory, model.end_tokens, CONTEXT, model.dry, vocab=model.vocab)
    return closing(SequenceSampler(sampling, 1, resources, prompt=[]))


def flat(model: LlamaModel) -> Logits:
    """Return logits by which each of the first tokens is unlikely, and the first one the best."""
    return np.linspace(0.5, 0, model.info.vocabulary, dtype=np.float32)


def sure(model: LlamaModel, token: int) -> Logits:
    logits = flat(model)
    logits[token] = 12
    return logits


@pytest.mark.parametrize("limit", [40, 0])
def test_draws_are_llama_cpps(model: LlamaModel, limit: int) -> None:
    size, rng = model.info.vocabulary, np.random.default_rng(5)
    makers: list[Any] = [
        llama_cpp.llama_sampler_init_top_k(limit or MOST_CANDIDATES),
        llama_cpp.llama_sampler_init_infill(model.vocab),
        llama_cpp.llama_sampler_init_dist(1),
    ]
    drawn = set[int]()
    with make(model, EDITORS.replaced(top_k=limit, top_p=1.0)) as ours, closing(SamplerChain(makers)) as theirs:
        whole = Candidates(size)
        for step in range(60):
            logits = rng.normal(0, 1 + step / 10, size).astype(np.float32)
            expected = whole.sample(theirs, np.arange(size, dtype=np.int32), logits)
            theirs.accept(expected)
            assert next_token(ours, logits.copy()) == expected
            drawn.add(expected)
    assert drawn & model.end_tokens
    assert len(drawn) > 10


def test_a_text_ends_where_no_token_is_likely(model: LlamaModel) -> None:
    with make(model, EDITORS) as sampler:
        assert next_token(sampler, sure(model, 30)) == 30
        assert next_token(sampler, flat(model)) in model.end_tokens


def test_a_temperature_of_0_does_not_leave_it_out(model: LlamaModel) -> None:
    with make(model, EDITORS.replaced(samplers=("infill", "temperature"), temperature=0)) as sampler:
        assert next_token(sampler, flat(model)) in model.end_tokens


@pytest.mark.parametrize("field", [{"ignore_eos": True}, {"min_tokens": 1}], ids=str)
def test_a_text_that_must_not_end_goes_on_with_the_best_token(model: LlamaModel, field: dict[str, Any]) -> None:
    logits = flat(model)
    best = next(token for token in range(model.info.vocabulary) if token not in model.end_tokens)
    with make(model, EDITORS.replaced(**field)) as sampler:
        assert next_token(sampler, logits) == best
        assert np.flatnonzero(sampler.kept() > -np.inf).tolist() == [best]


def test_a_model_without_a_token_that_ends_a_text_draws_without_it(
    model: LlamaModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    with make(model, EDITORS.replaced(samplers=("top_k", "top_p"))) as without:
        expected = next_token(without, flat(model))
    monkeypatch.setattr(llama_cpp, "llama_vocab_eos", lambda _vocab: llama_cpp.LLAMA_TOKEN_NULL)
    monkeypatch.setattr(llama_cpp, "llama_vocab_eot", lambda _vocab: llama_cpp.LLAMA_TOKEN_NULL)
    with make(model, EDITORS) as sampler:
        assert next_token(sampler, flat(model)) == expected
