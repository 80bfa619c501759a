"""The choice of the attention implementation, which does not change the answer."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from engine.config import EngineConfig
from engine.core.step import Chunk, Outcome, StepPlan
from engine.llama.attention import AUTO, FLASH, NO_FLASH, Attention, choose_attention, on_devices
from engine.llama.model import LlamaModel
from engine.llama.runner import LlamaRunner
from engine.request import Sampling
from tests.engine.driver import running
from tests.models import model_path


@pytest.mark.parametrize(
    ("asked", "head", "chosen"),
    [(True, 8, FLASH), (False, 128, NO_FLASH), (None, 128, AUTO), (None, 32, AUTO), (None, 8, NO_FLASH)],
)
def test_the_operator_chooses_and_else_the_size_of_a_head(asked: bool | None, head: int, chosen: Attention) -> None:
    assert choose_attention(asked, head) is chosen


def test_devices_compute_larger_chunks() -> None:
    assert on_devices(AUTO) == replace(AUTO, chunk=128)
    assert on_devices(NO_FLASH).chunk == NO_FLASH.batch


def test_both_attention_implementations_give_the_same_probabilities() -> None:
    blocks, none = (logprobs_of_a_prompt(flash_attention=asked) for asked in (True, False))
    assert blocks.shape == none.shape == (300 - 1,)
    np.testing.assert_allclose(blocks, none, atol=0.02)


def logprobs_of_a_prompt(*, flash_attention: bool) -> NDArray[np.float64]:
    """Return the log-probability of each token of a prompt, from the scores of its passes."""
    config = EngineConfig(model=str(model_path()), slots=2, context=512, threads=1, flash_attention=flash_attention)
    with LlamaModel(config, lambda _share: None) as model, LlamaRunner(model, config) as runner:
        tokens = [(at * 7) % 500 + 3 for at in range(300)]
        sequence = running(1, tokens, 1, sampling=Sampling(temperature=0.0), logprobs=0, echo=True)
        told = []
        while sequence.pending:
            chunk = Chunk(sequence, min(64, sequence.pending), sample=False, score=True)
            result = runner.run(StepPlan((chunk,), decode=False))
            assert result.outcome is Outcome.DONE
            told += [logprob for logprob, _top in result.scores[0]]
            sequence.advance(chunk.count, result.seconds)
    return np.array(told)
