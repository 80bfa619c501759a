"""Beginnings of texts, as tokens, and how much of them is the same."""

from dataclasses import dataclass

_FIRST = 16


@dataclass(frozen=True, slots=True)
class Prefix:
    """The first `size` of some tokens.

    Attributes:
        tokens: a list that holds them, and perhaps more.
        size: how many they are.
        partition: who may share its cells: those of the same partition. None shares with nobody.
    """

    tokens: list[int]
    size: int
    partition: str | None

    def common(self, other: "Prefix") -> int:
        """How many tokens both begin with, as far as they may share cells."""
        if self.partition is None or self.partition != other.partition:
            return 0
        return common_prefix(self.tokens, other.tokens, min(self.size, other.size))


@dataclass(frozen=True, slots=True, eq=False)
class StoredPrefix:
    """A prefix whose cells are saved in host memory.

    Attributes:
        key: names it to the runner that holds its cells; a later one is larger.
        prefix: its tokens.
        bytes: what its cells take.
    """

    key: int
    prefix: Prefix
    bytes: int

    @property
    def size(self) -> int:
        """Tokens held."""
        return self.prefix.size


def common_prefix(a: list[int], b: list[int], most: int) -> int:
    """How many of their first `most` tokens two lists share.

    Slices compare at the speed of C: ever longer ones, so that those who share little cost little; then by bisection.
    """
    low, high = 0, min(_FIRST, most)
    while low < high and a[low:high] == b[low:high]:
        low, high = high, min(2 * high, most)
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
