"""Prefixes of token lists, and the length of their common part."""

from dataclasses import dataclass, field

_FIRST = 16


@dataclass(slots=True)
class Prefix:
    """The first `size` of some tokens. Never changed; a frozen one would take three times as long to make."""

    tokens: list[int]
    """A list that begins with the prefix."""
    size: int
    """Number of tokens."""
    partition: str | None
    """The cache partition that may share its cells; not shared if None."""
    origin: tuple[int, int] | None = field(default=None, compare=False)
    """Label of the request that it comes from, and index of its prompt; unset without a label."""

    def common(self, other: "Prefix") -> int:
        """Return the number of common first tokens; 0 in different partitions."""
        if self.partition is None or self.partition != other.partition:
            return 0
        return common_prefix(self.tokens, other.tokens, min(self.size, other.size))


@dataclass(frozen=True, slots=True, eq=False)
class StoredPrefix:
    """A prefix with its cells saved in host memory."""

    key: int
    """Identifies its cells in the runner. Later keys are larger."""
    prefix: Prefix
    """Its tokens."""
    bytes: int
    """Size of its cells."""
    partial: bool = False
    """True for a checkpoint: only the state at its end is saved. Another place must hold the cells."""

    @property
    def size(self) -> int:
        """Number of tokens."""
        return self.prefix.size

    @property
    def tokens(self) -> list[int]:
        """A list that begins with its tokens."""
        return self.prefix.tokens

    @property
    def cells(self) -> int:
        """Number of saved cells."""
        return 0 if self.partial else self.size


def common_prefix(a: list[int], b: list[int], most: int) -> int:
    """Return how many of their first `most` tokens two lists share.

    Slices compare at the speed of C: growing ones first, so that a short common part costs little, then bisection.
    """
    most = min(most, len(a), len(b))
    low, high = 0, min(_FIRST, most)
    while low < high and a[low:high] == b[low:high]:
        low, high = high, min(2 * high, most)
    while high - low > _FIRST:
        middle = (low + high) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle
    while low < high and a[low] == b[low]:
        low += 1
    return low
