"""The common prefix of two token lists."""

import pytest

from engine.core.kv.prefix import Prefix, common_prefix

LONG = list(range(1000))


@pytest.mark.parametrize(
    ("a", "b", "shared"),
    [([], [1], 0), ([1, 2], [1, 2], 2), ([1, 2, 3], [1, 2, 4], 2), ([1], [2], 0), ([1, 2, 3], [1, 2], 2)],
)
def test_lists_are_compared_from_their_start(a: list[int], b: list[int], shared: int) -> None:
    assert common_prefix(a, b, min(len(a), len(b))) == shared


@pytest.mark.parametrize("shared", [0, 1, 15, 16, 17, 31, 32, 33, 500, 998, 999, 1000])
def test_the_common_prefix_of_lists_that_differ_anywhere(shared: int) -> None:
    other = [*LONG[:shared], *(-1 for _ in LONG[shared:])]
    assert common_prefix(LONG, other, len(LONG)) == shared
    assert common_prefix(LONG, other, 20) == min(shared, 20)


def test_a_prefix_is_as_long_as_it_says_and_shared_within_its_partition() -> None:
    assert Prefix(LONG, 7, "a").common(Prefix(LONG, 9, "a")) == 7
    assert Prefix(LONG, 7, "a").common(Prefix(LONG, 9, "b")) == 0
    assert Prefix(LONG, 7, "").common(Prefix(LONG, 9, "")) == 7
    assert Prefix(LONG, 7, None).common(Prefix(LONG, 9, None)) == 0
