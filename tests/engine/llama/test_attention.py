"""The choice of the attention implementation, which does not change the answer."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from engine.config import EngineConfig
from engine.core.sequence import Sequence, State
from engine.core.step import Chunk, Outcome, StepPlan
from engine.llama import attention
from engine.llama.attention import AUTO, FLASH, NO_FLASH, Attention, choose_attention
from engine.llama.model import LlamaModel
from engine.llama.runner import LlamaRunner
from engine.request import GenerationRequest, Sampling
from tests.models import model_path

LONG = EngineConfig(model="", context=4096)
SHORT = replace(LONG, context=2048)


def choose(config: EngineConfig, head: int = 128, *, generates: bool = True, offloads: bool = False) -> Attention:
    return choose_attention(config, head, 8192, generates=generates, offloads=offloads)


@pytest.fixture(autouse=True)
def cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "is_x86", lambda: True)


@pytest.mark.parametrize(
    ("asked", "head", "chosen"),
    [(True, 8, FLASH), (False, 128, NO_FLASH), (None, 128, AUTO), (None, 32, AUTO), (None, 8, NO_FLASH)],
)
def test_the_operator_chooses_and_else_the_size_of_a_head(asked: bool | None, head: int, chosen: Attention) -> None:
    assert choose(replace(SHORT, flash_attention=asked), head) is chosen


def test_long_slots_are_faster_without_flash_attention_on_x86(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose(LONG) is choose(replace(LONG, context=None)) is NO_FLASH
    assert choose(replace(LONG, flash_attention=True)) is FLASH
    monkeypatch.setattr(attention, "is_x86", lambda: False)
    assert choose(LONG) is AUTO


@pytest.mark.parametrize("fields", [{"kv_unified": True}, {"kv_type_v": "q8_0"}, {"kv_type_k": "bf16"}])
def test_caches_for_which_it_is_slow_or_needed_keep_the_choice_of_llama_cpp(fields: dict[str, Any]) -> None:
    assert choose(replace(LONG, **fields)) is AUTO


def test_a_model_of_short_slots_keeps_the_choice_of_llama_cpp() -> None:
    assert choose_attention(LONG, 128, 512, generates=True, offloads=False) is AUTO


def test_a_model_that_embeds_keeps_the_choice_of_llama_cpp() -> None:
    assert choose(LONG, generates=False) is AUTO


def test_devices_keep_the_choice_of_llama_cpp_and_compute_larger_chunks() -> None:
    assert choose(LONG, offloads=True) == replace(AUTO, chunk=128)
    assert choose(replace(LONG, flash_attention=False), offloads=True).chunk == NO_FLASH.batch


def test_splitting_tensors_needs_flash_attention() -> None:
    split = replace(LONG, hardware=replace(LONG.hardware, split_mode="tensor"))
    assert choose(split) is FLASH


def test_both_attention_implementations_give_the_same_probabilities() -> None:
    blocks, none = (logprobs_of_a_prompt(flash_attention=asked) for asked in (True, False))
    assert blocks.shape == none.shape == (300 - 1,)
    np.testing.assert_allclose(blocks, none, atol=0.02)


def logprobs_of_a_prompt(*, flash_attention: bool) -> np.ndarray:
    """Return the log-probability of each token of a prompt, from the scores of its passes."""
    config = EngineConfig(model=str(model_path()), slots=2, context=512, threads=1, flash_attention=flash_attention)
    request = GenerationRequest(id="", prompts=("",), sampling=Sampling(temperature=0.0), logprobs=0, echo=True)
    with LlamaModel(config, lambda _share: None) as model, LlamaRunner(model, config) as runner:
        sequence = Sequence(request, 0, [(at * 7) % 500 + 3 for at in range(300)], 1)
        sequence.enter(State.RUNNING)
        sequence.seq_id = 1
        told = []
        while sequence.pending:
            chunk = Chunk(sequence, min(64, sequence.pending), sample=False, score=True)
            result = runner.run(StepPlan((chunk,), decode=False))
            assert result.outcome is Outcome.DONE
            told += [logprob for logprob, _top in result.scores[0]]
            sequence.advance(chunk.count, result.seconds)
    return np.array(told)
