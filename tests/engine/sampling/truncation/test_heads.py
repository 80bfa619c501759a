"""Heads of rows against their definition."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from engine.sampling.candidates import Logits
from engine.sampling.truncation.heads import LOWEST, MOST_ROWS, Heads, floors_of_best

ROWS = arrays.arrays(
    np.float32,
    st.tuples(st.integers(1, MOST_ROWS), st.integers(1, 300)),
    elements=st.sampled_from([-math.inf, *range(-20, 20)]),
).filter(lambda rows: bool(np.isfinite(rows).any(axis=1).all()))


def kept(heads: Heads) -> list[list[int]]:
    """Return the places of the candidates of each row."""
    return [heads.columns[heads.rows == row].tolist() for row in range(heads.count)]


@given(ROWS, st.integers(-25, 25))
def test_the_candidates_are_at_or_above_the_floor_of_their_row(logits: Logits, depth: int) -> None:
    tops = logits.max(axis=1)
    floors = tops - np.float32(abs(depth))
    heads = Heads.above(logits, tops, floors)
    expected = [np.flatnonzero((row >= floor) & (row > -math.inf)) for row, floor in zip(logits, floors, strict=True)]
    assert kept(heads) == [ids.tolist() for ids in expected]
    assert (
        heads.logits.tolist()
        == np.concatenate([row[ids] - row.max() for row, ids in zip(logits, expected, strict=True)]).tolist()
    )


@given(ROWS)
def test_the_likeliest_come_first_and_of_equal_ones_the_first(logits: Logits) -> None:
    tops = logits.max(axis=1)
    heads = Heads.above(logits, tops, np.full_like(tops, LOWEST)).sorted()
    for row, places in zip(logits, kept(heads), strict=True):
        assert places == sorted(np.flatnonzero(row > -math.inf).tolist(), key=lambda place: (-row[place], place))
    assert (logits[heads.rows, heads.columns] - tops[heads.rows] == heads.logits).all()


@given(ROWS, st.data())
def test_the_best_of_each_row_are_above_its_floor(logits: Logits, data: st.DataObject) -> None:
    counts = np.array([data.draw(st.integers(1, 400)) for _ in logits])
    tops = logits.max(axis=1)
    heads = Heads.above(logits, tops, floors_of_best(logits, int(counts.max()))).sorted().first(counts)
    for row, places, count in zip(logits, kept(heads), counts.tolist(), strict=True):
        order = sorted(np.flatnonzero(row > -math.inf).tolist(), key=lambda place: (-row[place], place))
        assert places == order[:count]


@pytest.mark.parametrize("count", [1, 40, 100, 4999, 5000, 9000])
def test_few_more_than_the_best_are_above_the_floor(count: int) -> None:
    logits = np.random.default_rng(1).normal(0, 3, (2, 5000)).astype(np.float32)
    above = (logits >= floors_of_best(logits, count)[:, np.newaxis]).sum(axis=1)
    assert (above >= min(count, 5000)).all()
    assert (above <= 2 * count).all()


@given(ROWS, st.data())
def test_a_nucleus_is_the_smallest_beginning_with_the_mass(logits: Logits, data: st.DataObject) -> None:
    tops = logits.max(axis=1)
    heads = Heads.above(logits, tops, tops - np.float32(12.5)).sorted()
    masses = np.array([data.draw(st.floats(0, 5)) for _ in logits])
    nuclei = heads.nucleus(masses)
    for row, (all_places, places) in enumerate(zip(kept(heads), kept(nuclei), strict=True)):
        assert places == all_places[: len(places)]
        sums = np.cumsum(np.exp(heads.logits[heads.rows == row]), dtype=np.float64)
        missing = masses[row] - sums
        assert missing[len(places) - 1] <= 1e-6 or len(places) == len(all_places)
        assert len(places) == 1 or missing[len(places) - 2] >= -1e-6
