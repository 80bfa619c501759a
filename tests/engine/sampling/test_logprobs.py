"""Log-probabilities against their definition, computed in double precision."""

import math

import numpy as np
import pytest

from engine.sampling.candidates import Logits
from engine.sampling.logprobs import LEAST, LogProbs

VOCABULARY = 5000


def expected(logits: Logits) -> list[float]:
    exact = logits.astype(np.float64) - logits.max()
    values: list[float] = (exact - math.log(np.exp(exact).sum())).tolist()
    return values


@pytest.mark.parametrize("spread", [0.001, 1.0, 20.0])
@pytest.mark.parametrize("shift", [0.0, -1000.0])
def test_logprobs_are_the_logarithm_of_the_softmax(spread: float, shift: float) -> None:
    logits = (np.random.default_rng(1).normal(0, spread, VOCABULARY) + shift).astype(np.float32)
    logprobs, exact = LogProbs(logits), expected(logits)
    assert [logprobs.of(token) for token in range(VOCABULARY)] == pytest.approx(exact, abs=2e-5)
    order = sorted(range(VOCABULARY), key=lambda token: (-logits[token], token))
    for count in (0, 1, 20, VOCABULARY):
        top = logprobs.top(count)
        assert [token for token, _ in top] == order[:count]
        assert [value for _, value in top] == [logprobs.of(token) for token in order[:count]]


def test_equal_logprobs_are_ordered_by_token_id() -> None:
    logits = np.zeros(VOCABULARY, np.float32)
    logits[[7, 99]] = 1.0
    assert [token for token, _ in LogProbs(logits).top(5)] == [7, 99, 0, 1, 2]


def test_an_impossible_token_has_a_finite_logprob() -> None:
    logits = np.full(VOCABULARY, -np.inf, np.float32)
    logits[3] = 5.0
    logprobs = LogProbs(logits)
    assert logprobs.of(4) == LEAST
    assert logprobs.top(3) == [(3, 0.0)]


def test_logits_without_a_number_give_the_least_logprob() -> None:
    assert LogProbs(np.full(10, np.nan, np.float32)).of(3) == LEAST


def test_logits_that_are_no_numbers_have_no_alternatives() -> None:
    logprobs = LogProbs(np.full(VOCABULARY, np.nan, np.float32))
    assert (logprobs.top(5), logprobs.of(3)) == ([], LEAST)
