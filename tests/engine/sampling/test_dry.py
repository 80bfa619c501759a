"""DRY: llama.cpp's own sampler, cloned from a template, applied to the tokens of the text only."""

import ctypes
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import llama_cpp
import numpy as np
import pytest

from engine.config import EngineConfig
from engine.errors import RequestError
from engine.llama.model import LlamaModel
from engine.llama.vocabulary.alphabet import Alphabet
from engine.request import Sampling
from engine.sampling import dry as module
from engine.sampling.candidates import Candidates, Logits
from engine.sampling.chain import SamplerChain
from engine.sampling.dry import DryTemplates
from engine.sampling.resources import SamplerResources
from engine.sampling.sampler import SequenceSampler
from tests.c_calls import Handles
from tests.engine.sampling.draws import next_token
from tests.models import model_path

CONTEXT = 256


@pytest.fixture(scope="module")
def model() -> Iterator[LlamaModel]:
    config = EngineConfig(model=str(model_path()), slots=1, context=CONTEXT, threads=1)
    with LlamaModel(config, lambda _share: None) as loaded:
        yield loaded


def theirs(model: LlamaModel, sampling: Sampling, prompt: list[int], window: int) -> SamplerChain:
    """Return llama.cpp's chain over the whole vocabulary, with a DRY sampler made for this one sequence."""
    breakers = [text.encode() for text in sampling.dry_sequence_breakers]
    dry = llama_cpp.llama_sampler_init_dry(
        model._tokenizer.vocab,
        sampling.dry_multiplier,
        sampling.dry_base,
        sampling.dry_allowed_length,
        window,
        (ctypes.c_char_p * len(breakers))(*breakers),
        len(breakers),
    )
    for token in prompt:
        llama_cpp.llama_sampler_accept(dry, token)
    rest = [
        llama_cpp.llama_sampler_init_top_k(sampling.top_k),
        llama_cpp.llama_sampler_init_temp(sampling.temperature),
        llama_cpp.llama_sampler_init_dist(1),
    ]
    return SamplerChain([dry, *rest] if sampling.samplers is None else [rest[0], dry, *rest[1:]])


def make_logits(size: int, seed: int) -> Logits:
    return np.random.default_rng(seed).normal(0, 1, size).astype(np.float32)


SHAPES: list[dict[str, Any]] = [
    {"dry_multiplier": 2.0},
    {"dry_multiplier": 1.0, "dry_base": 1.1, "dry_allowed_length": 0},
    {"dry_multiplier": 3.0, "dry_penalty_last_n": 30},
    {"dry_multiplier": 3.0, "dry_sequence_breakers": ()},
    {"dry_multiplier": 3.0, "dry_sequence_breakers": ("time", ", and", "a")},
    {"dry_multiplier": 2.0, "samplers": ("top_k", "dry", "temperature")},
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_dry_draws_are_llama_cpps(model: LlamaModel, shape: dict[str, Any]) -> None:
    sampling = Sampling(top_k=8, temperature=0.7, **shape)
    size = model.info.vocabulary
    prompt = model.tokenize("Once upon a time, there was a dog. " * 3)
    resources = SamplerResources(Candidates(size), model.end_tokens, CONTEXT, model.dry)
    ours = SequenceSampler(sampling, 1, resources, prompt=prompt)
    reference = theirs(model, sampling, prompt, CONTEXT if sampling.dry_penalty_last_n < 0 else 30)
    whole = Candidates(size)
    penalised = False
    for step in range(60):
        logits = make_logits(size, step % 4)
        logits[prompt[step % len(prompt)]] += 6.0
        expected = whole.sample(reference, np.arange(size, dtype=np.int32), logits)
        reference.accept(expected)
        penalised |= expected != int(logits.argmax())
        assert next_token(ours, logits.copy()) == expected
    assert penalised
    ours.close()
    reference.close()


def test_dry_templates_are_cached_for_a_while_and_freed(model: LlamaModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TEMPLATES", 2)
    handles = Handles(monkeypatch)
    templates = DryTemplates(model._tokenizer.vocab, CONTEXT)
    first, second, third = (Sampling(dry_multiplier=float(n + 1)) for n in range(3))
    templates.prepare(first)
    kept = set(handles.alive)
    copy = templates.sampler(first)
    assert set(handles.alive) == kept, "an uncounted copy"
    templates.prepare(second)
    templates.prepare(first)
    templates.prepare(third)
    assert len(handles.alive) == 2
    assert kept < set(handles.alive), "used last"
    templates.close()
    templates.close()
    assert not handles.alive
    llama_cpp.llama_sampler_accept(copy, 5)


def test_a_model_prepares_a_sampler_only_if_it_is_wanted_and_can_be_made(
    model: LlamaModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    handles = Handles(monkeypatch)
    monkeypatch.setattr(model._tokenizer, "_alphabet", Alphabet({"\u2581": 0, "a": 0}))
    wrong: dict[str, Any] = {"dry_multiplier": 1.5, "dry_sequence_breakers": ("ab",)}
    model.prepare(Sampling(**wrong, dry_penalty_last_n=0))
    with pytest.raises(RequestError, match="no token for the character 'b'"):
        model.prepare(Sampling(**wrong))
    assert not handles.alive


def test_a_dry_template_that_cannot_be_made_is_an_error(model: LlamaModel, monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = ctypes.POINTER(llama_cpp.llama_sampler)()
    monkeypatch.setattr(llama_cpp, "llama_sampler_init_dry", lambda *_: nothing)
    templates = DryTemplates(model._tokenizer.vocab, CONTEXT)
    with pytest.raises(MemoryError):
        templates.prepare(Sampling(dry_multiplier=1.0))
    templates.close()


def test_a_sampler_does_not_wait_for_the_template_of_another(
    model: LlamaModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    templates = DryTemplates(model._tokenizer.vocab, CONTEXT)
    known, other = Sampling(dry_multiplier=1.0), Sampling(dry_multiplier=2.0)
    templates.prepare(known)
    make, made = llama_cpp.llama_sampler_init_dry, []

    def make_slowly(*arguments: Any) -> Any:
        with ThreadPoolExecutor(1) as thread:
            sampler = thread.submit(templates.sampler, known).result(timeout=20)
        made.append(sampler)
        llama_cpp.llama_sampler_free(sampler)
        return make(*arguments)

    monkeypatch.setattr(llama_cpp, "llama_sampler_init_dry", make_slowly)
    templates.prepare(other)
    templates.close()
    assert len(made) == 1
