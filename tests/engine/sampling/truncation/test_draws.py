"""Draws of several rows at once, and their candidates against the definition in double precision."""

import math
import tracemalloc
from typing import Any

import numpy as np
import pytest

from engine.request import Sampling
from engine.sampling.candidates import Logits
from engine.sampling.sampler_order import active_samplers
from engine.sampling.truncation.draws import Truncation, draw, truncation_of
from engine.sampling.truncation.heads import MOST_ROWS, Heads

VOCABULARY = 5000
SETTINGS: list[dict[str, Any]] = [
    {"top_k": 5},
    {"top_k": 300, "top_p": 0.9, "temperature": 1.7},
    {"top_p": 0.5},
    {"top_p": 0.999, "min_p": 0.01, "temperature": 0.5},
    {"min_p": 0.05},
    {"min_p": 0.3, "temperature": 2.0},
    {},
    {"temperature": 0.8},
    {"temperature": 30.0},
]


def truncation(seed: int = 1, **settings: Any) -> Truncation:
    """Return how a request with these settings draws."""
    sampling = Sampling(**settings)
    made = truncation_of(sampling, active_samplers(sampling), seed)
    assert made is not None
    return made


def candidates(logits: Logits, **settings: Any) -> Heads:
    """Return the candidates of one row."""
    made = truncation(**settings)
    assert made.find is not None
    return made.find(logits[np.newaxis], logits.max(keepdims=True), [made])


def make_logits(spread: float) -> Logits:
    return np.random.default_rng(1).normal(0, spread, VOCABULARY).astype(np.float32)


@pytest.mark.parametrize("spread", [0.01, 1.0, 5.0, 30.0])
@pytest.mark.parametrize("top_p", [0.0, 1e-6, 0.3, 0.9, 0.99, 0.9999])
def test_the_nucleus_is_the_smallest_set_with_the_mass(spread: float, top_p: float) -> None:
    logits = make_logits(spread)
    weights = np.exp(logits.astype(np.float64) - logits.max())
    shares = weights / weights.sum()
    kept = candidates(logits, top_p=top_p).columns
    rounding = 1e-6
    assert shares[kept].sum() >= top_p - rounding
    assert shares[kept[:-1]].sum() <= top_p + rounding, "without the last one it has not"
    assert shares[kept].min() >= np.delete(shares, kept).max(initial=0.0), "the likeliest ones"
    assert (np.diff(logits[kept]) <= 0).all(), "likeliest first"
    assert len(set(kept.tolist())) == len(kept) >= 1


def test_a_nucleus_of_almost_all_mass_leaves_out_impossible_tokens() -> None:
    logits = make_logits(1.0)
    logits[::2] = -np.inf
    assert len(candidates(logits, top_p=math.nextafter(1.0, 0.0)).columns) <= VOCABULARY // 2


def test_ties_at_the_border_of_the_nucleus_are_cut() -> None:
    assert candidates(np.zeros(10, np.float32), top_p=0.35).columns.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("min_p", [1e-9, 0.05, 0.5, 1.0])
@pytest.mark.parametrize("others", [{}, {"top_k": VOCABULARY}, {"top_p": 0.999999}], ids=str)
def test_min_p_keeps_all_tokens_above_the_share_and_no_other(min_p: float, others: dict[str, Any]) -> None:
    logits = make_logits(2.0) + np.float32(3.0)
    shares = np.exp(logits.astype(np.float64) - logits.max())
    kept = set(candidates(logits, min_p=min_p, **others).columns.tolist())
    assert kept <= set(np.flatnonzero(shares >= min_p * (1 - 1e-6)).tolist())
    missing = set(np.flatnonzero(shares >= min_p * (1 + 1e-6)).tolist()) - kept
    assert shares[list(missing)].sum() <= 2e-6 * shares.sum(), "those that top_p drops"


def test_rows_that_are_drawn_together_have_the_tokens_that_they_have_alone() -> None:
    order = np.random.default_rng(5)
    settings = [SETTINGS[at] for at in order.integers(0, len(SETTINGS), 60)]
    settings += [SETTINGS[at] for at in range(len(SETTINGS)) for _ in range(11)]  # more than one part of rows
    together = [truncation(seed, **one) for seed, one in enumerate(settings)]
    alone = [truncation(seed, **one) for seed, one in enumerate(settings)]
    for step in range(3):
        logits = np.random.default_rng(step).normal(0, 3, (len(settings), VOCABULARY)).astype(np.float32)
        logits[::7, ::3] = -math.inf
        best = logits.argmax(axis=1).tolist()
        drawn = draw(logits, best, together)
        assert drawn == [
            draw(row[np.newaxis], [top], [one])[0] for row, top, one in zip(logits, best, alone, strict=True)
        ]
        assert all(row[token] > -math.inf for row, token in zip(logits, drawn, strict=True))


def test_a_draw_from_a_large_vocabulary_does_not_depend_on_how_flat_other_rows_are() -> None:
    spreads = np.array([2.0, 10.0, 10.0, 10.0])  # the first one has tens of thousands of likely tokens
    logits = np.random.default_rng(2).normal(0, 1, (len(spreads), 8 * VOCABULARY)) * spreads[:, np.newaxis]
    check_alone(logits.astype(np.float32), {})


@pytest.mark.parametrize("seed", range(10))
def test_ties_at_the_border_of_a_nucleus_do_not_depend_on_other_rows(seed: int) -> None:
    logits = np.random.default_rng(seed).normal(0, 12, (MOST_ROWS, 200)).astype(np.float32)
    logits[1::2, 10:] = -math.inf
    logits[1::2, :10] = 3.3
    check_alone(logits, {"top_k": 50, "top_p": 0.5})


def check_alone(logits: Logits, settings: dict[str, Any]) -> None:
    """Check that rows have the tokens together that they have alone."""
    best = logits.argmax(axis=1).tolist()
    for step in range(20):
        seeds = range(step * len(logits), (step + 1) * len(logits))
        alone = [
            draw(row[np.newaxis], [top], [truncation(seed, **settings)])[0]
            for seed, row, top in zip(seeds, logits, best, strict=True)
        ]
        assert draw(logits, best, [truncation(seed, **settings) for seed in seeds]) == alone


@pytest.mark.parametrize(
    ("usual", "wide"), [({"top_k": 40}, {"top_k": 2**31 - 1}), ({"top_p": 0.5}, {"top_p": 0.9999999})], ids=str
)
def test_a_row_with_many_candidates_does_not_make_those_of_others_many(
    usual: dict[str, Any], wide: dict[str, Any]
) -> None:
    logits = np.random.default_rng(2).normal(0, 4, (MOST_ROWS, 8 * VOCABULARY)).astype(np.float32)
    truncations = [truncation(**usual) for _ in logits]
    truncations[3] = truncation(**wide)
    best = logits.argmax(axis=1).tolist()
    tracemalloc.start()
    draw(logits, best, truncations)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3 * logits.nbytes


def test_many_candidates_of_all_rows_are_not_held_at_once() -> None:
    logits = np.random.default_rng(2).normal(0, 4, (MOST_ROWS, 8 * VOCABULARY)).astype(np.float32)
    tracemalloc.start()
    draw(logits, logits.argmax(axis=1).tolist(), [truncation(min_p=1e-30) for _ in logits])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3 * logits.nbytes


def test_only_the_head_of_a_flat_row_grows_to_have_the_mass_of_its_nucleus(monkeypatch: pytest.MonkeyPatch) -> None:
    logits = np.random.default_rng(2).normal(0, 1, (2, VOCABULARY)).astype(np.float32)
    logits[0, 7] = 16.0
    logits[1] *= 3
    sizes: list[int] = []

    def sort(heads: Heads) -> Heads:
        sizes.append(int((heads.rows == 0).sum()))
        return original(heads)

    original = Heads.sorted
    monkeypatch.setattr(Heads, "sorted", sort)
    draw(logits, logits.argmax(axis=1).tolist(), [truncation(top_p=0.99)] * 2)
    assert sizes == [1]


@pytest.mark.parametrize(
    "settings",
    [{"typical_p": 0.5}, {"dynatemp_range": 0.5}, {"samplers": ("top_p", "top_k"), "top_p": 0.5, "top_k": 3}],
    ids=str,
)
def test_other_samplers_and_orders_are_for_llama_cpp(settings: dict[str, Any]) -> None:
    sampling = Sampling(**settings)
    assert truncation_of(sampling, active_samplers(sampling), 1) is None
