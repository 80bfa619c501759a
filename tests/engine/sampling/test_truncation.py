"""Truncation against its definition, computed in double precision."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from engine.sampling.candidates import Logits
from engine.sampling.truncation import above_min_p, nonzero, nucleus, possible, top_k

VOCABULARY = 5000


def make_logits(spread: float) -> Logits:
    """Return logits relative to the best one, as the sampler passes them."""
    logits: Logits = np.random.default_rng(1).normal(0, spread, VOCABULARY).astype(np.float32)
    logits -= logits.max()
    return logits


@pytest.mark.parametrize("spread", [0.01, 1.0, 5.0, 30.0])
@pytest.mark.parametrize("top_p", [0.0, 1e-6, 0.3, 0.9, 0.99, 0.9999])
def test_the_nucleus_is_the_smallest_set_with_the_mass(spread: float, top_p: float) -> None:
    logits = make_logits(spread)
    weights = np.exp(logits.astype(np.float64))
    shares = weights / weights.sum()
    kept = nucleus(logits, top_p)
    rounding = 1e-6
    assert shares[kept].sum() >= top_p - rounding
    assert shares[kept[:-1]].sum() <= top_p + rounding, "without the last one it has not"
    assert shares[kept].min() >= np.delete(shares, kept).max(initial=0.0), "the likeliest ones"
    assert (np.diff(logits[kept]) <= 0).all(), "likeliest first"
    assert len(set(kept.tolist())) == len(kept) >= 1


def test_a_nucleus_of_almost_all_mass_leaves_out_impossible_tokens() -> None:
    logits = make_logits(1.0)
    logits[::2] = -np.inf
    assert len(nucleus(logits - logits.max(), np.nextafter(1.0, 0.0))) <= VOCABULARY // 2


def test_ties_at_the_border_of_the_nucleus_are_cut() -> None:
    assert len(nucleus(np.zeros(10, np.float32), 0.35)) == 4


@pytest.mark.parametrize("min_p", [1e-9, 0.05, 0.5, 1.0])
def test_min_p_keeps_all_tokens_above_the_share_and_hardly_more(min_p: float) -> None:
    logits = make_logits(2.0)
    shares = np.exp(logits.astype(np.float64))
    kept = set(above_min_p(logits + 3.0, min_p, 3.0).tolist())
    assert set(np.flatnonzero(shares >= min_p).tolist()) <= kept
    assert kept <= set(np.flatnonzero(shares >= min_p * 0.99).tolist())


ROWS = arrays.arrays(np.float32, st.integers(1, 300), elements=st.sampled_from([-math.inf, *range(-20, 20)]))


@given(ROWS, st.integers(1, 400))
def test_top_k_keeps_the_k_best_tokens(logits: Logits, count: int) -> None:
    kept = top_k(logits, count)
    can_be = np.flatnonzero(logits > -math.inf)
    assert len(set(kept.tolist())) == len(kept) == min(count, len(can_be))
    assert sorted(logits[kept].tolist()) == sorted(logits[can_be].tolist())[len(can_be) - len(kept) :]


@pytest.mark.parametrize("count", [1, 40, 100, 4999, 5000, 9000])
def test_top_k_equals_a_full_sort(count: int) -> None:
    logits = make_logits(3.0)
    assert set(top_k(logits, count).tolist()) == set(np.argsort(-logits)[:count].tolist())


def test_impossible_and_weightless_tokens_are_left_out() -> None:
    logits = np.array([5.0, -math.inf, -90.0, -100.0, 4.0], np.float32)
    assert possible(logits).tolist() == [0, 2, 3, 4]
    assert nonzero(logits).tolist() == [0, 2, 4]
