"""The parts of a step."""

import pytest

from engine.core.step import Chunk, StepPlan
from tests.engine.driver import running


def chunk(seq_id: int, count: int) -> Chunk:
    return Chunk(running(seq_id, range(100)), count, sample=False)


@pytest.mark.parametrize(
    ("chunks", "parts"),
    [
        ([(0, 5)], [1]),
        ([(0, 5), (1, 5), (2, 5)], [3]),
        ([(0, 5), (1, 4), (2, 4)], [1, 2]),
        ([(0, 5), (2, 5), (3, 5), (5, 5)], [1, 2, 1]),
        ([(0, 5), (1, 4), (2, 5)], [1, 1, 1]),
    ],
)
def test_a_weight_pass_has_neighbouring_slots_with_equally_many_rows(
    chunks: list[tuple[int, int]], parts: list[int]
) -> None:
    plan = StepPlan(tuple(chunk(*one) for one in chunks), decode=False, adapters=((1, 0.5),))
    passes = list(plan.weight_passes(lambda *_: True))  # which only rows of one token can use
    assert [len(one.chunks) for one in passes] == parts
    assert tuple(one for part in passes for one in part.chunks) == plan.chunks
    assert {(part.decode, part.adapters) for part in passes} == {(False, plan.adapters)}


@pytest.mark.parametrize(("most", "parts"), [(0, [2, 1, 1]), (1, [3, 1]), (2, [4])])
def test_a_bridge_joins_slots_with_one_row(most: int, parts: list[int]) -> None:
    plan = StepPlan(tuple(chunk(slot, 1) for slot in (1, 2, 4, 7)), decode=True)
    passes = list(plan.weight_passes(lambda before, after: after - before - 1 <= most))
    assert [len(one.chunks) for one in passes] == parts
