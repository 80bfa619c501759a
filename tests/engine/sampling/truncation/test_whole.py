"""Draws from all tokens: each comes as often as its probability says."""

import math
from collections import Counter

import numpy as np
import pytest
from typing_extensions import override

from engine.sampling.candidates import Logits
from engine.sampling.truncation import whole
from engine.sampling.truncation.uniforms import Uniforms

LARGE = 20_000


class Scripted(Uniforms):
    """Numbers that a test has chosen."""

    def __init__(self, *numbers: float) -> None:
        super().__init__(0)
        self._numbers = list(numbers)

    @override
    def next(self) -> float:
        return self._numbers.pop(0)


def draw(logits: Logits, temperature: float, uniforms: Uniforms) -> int:
    tops, temperatures = logits.max(keepdims=True), np.array([temperature], np.float32)
    return whole.draw_from_all(logits[np.newaxis], tops, temperatures, [uniforms])[0]


@pytest.mark.parametrize("temperature", [0.2, 1.0, 1.7])
@pytest.mark.parametrize("tokens", [500, LARGE])
def test_the_numbers_of_a_token_are_as_many_as_its_share(
    temperature: float, tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whole, "_LIKELY", 0)  # by blocks, where the vocabulary is large
    logits = np.random.default_rng(3).normal(0, 2, tokens).astype(np.float32)
    weights = np.exp((logits.astype(np.float64) - logits.max()) / np.float32(temperature))
    shares = weights / weights.sum()
    ends = np.cumsum(shares)
    for token in [*range(0, tokens, 61), tokens - 1, *np.argsort(-shares)[:50].tolist()]:
        for place in (0.01, 0.5, 0.99):
            if shares[token] > 1e-4:  # otherwise rounding may give a neighbour
                assert draw(logits, temperature, Scripted(ends[token] - place * shares[token])) == token


def test_tokens_come_as_often_as_they_should() -> None:
    logits = np.full(LARGE, -60.0, np.float32)
    shares = {17: 0.5, 700: 0.3, 701: 0.15, LARGE - 1: 0.05}
    for token, share in shares.items():
        logits[token] = math.log(share)
    uniforms, draws = Uniforms(7), 2000
    counts = Counter(draw(logits, 1.0, uniforms) for _ in range(draws))
    assert counts.keys() <= shares.keys()
    square = sum((counts[token] - draws * share) ** 2 / (draws * share) for token, share in shares.items())
    assert square < 16.3, "chi-square with 3 degrees of freedom, once in 1,000"


@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_unlikely_tokens_come_as_often_as_they_should(temperature: float) -> None:
    depths = np.full(LARGE, whole._depth(LARGE) + 0.05)  # all below the floor
    depths[LARGE // 2 :] += 1.0
    depths[5] = 0.0
    logits = (temperature * (30.0 - depths)).astype(np.float32)
    weights = np.exp(-depths)
    shares = np.array([1.0, weights[6 : LARGE // 2].sum() + 5 * weights[6], weights[LARGE // 2 :].sum()])
    uniforms, draws = Uniforms(3), 6000
    tokens = np.array([draw(logits, temperature, uniforms) for _ in range(draws)])
    others = tokens[tokens != 5]
    counts = np.array([draws - len(others), (others < LARGE // 2).sum(), (others >= LARGE // 2).sum()])
    expected = draws * shares / shares.sum()
    assert ((counts - expected) ** 2 / expected).sum() < 13.8, "chi-square with 2 degrees of freedom, once in 1,000"
    assert len(set(others.tolist())) > len(others) * 0.9


def test_an_impossible_token_never_stands_for_the_unlikely_ones() -> None:
    logits = np.full(LARGE, -math.inf, np.float32)
    logits[[3, 4]] = 5.0
    uniforms = Uniforms(1)
    assert {draw(logits, 1.0, uniforms) for _ in range(200)} == {3, 4}


def test_a_rounded_mass_of_a_block_gives_no_impossible_token() -> None:
    logits = np.random.default_rng(1).normal(0, 0.5, LARGE).astype(np.float32)
    logits[whole._BLOCK - 1 :: whole._BLOCK] = -math.inf
    weights = np.exp(logits - logits.max())
    masses = np.cumsum(np.add.reduceat(weights, np.arange(0, LARGE, whole._BLOCK)), dtype=np.float64)
    for end in (masses / masses[-1]).tolist():
        assert logits[draw(logits, 1.0, Scripted(end - 1e-15))] > -math.inf
