"""The prefix index: the same results as a linear search, with fewer comparisons."""

import random

import pytest

from engine.core.kv.prefix import Prefix, StoredPrefix
from engine.core.kv.prefix_index import PrefixIndex


def draw(chance: random.Random) -> Prefix:
    tokens = chance.choices([1, 2, 3], k=chance.randint(1, 9))
    return Prefix(tokens, len(tokens), chance.choice(["", "a"]))


@pytest.mark.parametrize("seed", range(5))
def test_the_index_finds_the_result_of_a_linear_search(seed: int) -> None:
    chance = random.Random(seed)
    index, held = PrefixIndex[StoredPrefix](), list[StoredPrefix]()
    for key in range(300):
        if held and chance.random() < 0.4:
            index.remove(held.pop(chance.randrange(len(held))))
        made = StoredPrefix(key, draw(chance), 0)
        held.append(made)
        index.add(made)
        wanted = draw(chance)
        shared = [one.prefix.common(wanted) for one in held]
        nearest, within = index.nearest(wanted), index.longest_within(wanted)
        assert (nearest.prefix.common(wanted) if nearest else 0) == max(shared)
        whole = [common for one, common in zip(held, shared, strict=True) if common == one.size]
        assert (within.size if within else 0) == max(whole, default=0)
        assert within is None or within.prefix.common(wanted) == within.size


def test_a_private_prefix_is_not_found() -> None:
    index = PrefixIndex[StoredPrefix]()
    index.add(StoredPrefix(1, Prefix([1, 2], 2, "a"), 0))
    for partition in (None, "", "b"):
        assert index.nearest(Prefix([1, 2], 2, partition)) is None
        assert index.longest_within(Prefix([1, 2], 2, partition)) is None


class Counting(list[int]):
    """Tokens that count how often they are compared."""

    compared = 0

    def __lt__(self, other: object) -> bool:
        Counting.compared += 1
        return super().__lt__(other)  # type: ignore[operator]


def test_ten_thousand_prefixes_are_compared_as_hardly_more_than_a_hundred() -> None:
    needed = []
    for count in (100, 10_000):
        index = PrefixIndex[StoredPrefix]()
        for key in range(count):
            index.add(StoredPrefix(key, Prefix(Counting([key % 97, key]), 2, ""), 0))
        Counting.compared = 0
        assert index.nearest(Prefix(Counting([5, 5]), 2, "")) is not None
        needed.append(Counting.compared)
    assert 0 < needed[0] <= needed[1] <= needed[0] + 8
