"""Finds the stored prefix with the longest common part without comparing all of them."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from itertools import islice
from typing import Generic, Protocol, TypeVar

from engine.core.kv.prefix import Prefix


class Indexed(Protocol):
    """A prefix with its cells somewhere."""

    @property
    def prefix(self) -> Prefix:
        """Its tokens."""

    @property
    def size(self) -> int:
        """Number of tokens."""


IndexedT = TypeVar("IndexedT", bound=Indexed)


class PrefixIndex(Generic[IndexedT]):
    """Stored prefixes in lexicographic order, in which the one with the longest common part is a neighbour."""

    def __init__(self) -> None:
        self._ordered: dict[str | None, list[IndexedT]] = {}

    def add(self, stored: IndexedT) -> None:
        """Insert a prefix."""
        insort(self._ordered.setdefault(stored.prefix.partition, []), stored, key=_tokens)

    def remove(self, stored: IndexedT) -> None:
        """Remove a prefix."""
        ordered = self._ordered[stored.prefix.partition]
        ordered.remove(stored)
        if not ordered:
            del self._ordered[stored.prefix.partition]

    def find(self, wanted: Prefix) -> Iterator[IndexedT]:
        """Yield the prefix with the longest common part, and the longest one that `wanted` begins with."""
        nearest = self.nearest(wanted)
        if nearest is not None:
            yield nearest
            if nearest.prefix.common(wanted) < nearest.size:
                yield from islice(self.all_within(wanted), 1)

    def nearest(self, wanted: Prefix) -> IndexedT | None:
        """Return the prefix with the longest common part."""
        ordered = self._ordered.get(wanted.partition, [])
        at = bisect_left(ordered, wanted.tokens[: wanted.size], key=_tokens)
        beside = ordered[max(at - 1, 0) : at + 1]
        return max(beside, key=lambda one: (one.prefix.common(wanted), -one.size), default=None)

    def longest_within(self, wanted: Prefix) -> IndexedT | None:
        """Return the longest stored prefix that `wanted` begins with."""
        return next(self.all_within(wanted), None)

    def all_within(self, wanted: Prefix) -> Iterator[IndexedT]:
        """Yield the stored prefixes that `wanted` begins with, the longest first.

        An entry just before `wanted` that is not one of its beginnings differs from it behind all of them.
        """
        ordered = self._ordered.get(wanted.partition, [])
        size = wanted.size
        while size and (at := bisect_right(ordered, wanted.tokens[:size], key=_tokens)):
            one = ordered[at - 1]
            size = one.prefix.common(wanted)
            if size == one.size:
                yield one
                size -= 1


def _tokens(stored: Indexed) -> list[int]:
    return stored.prefix.tokens
