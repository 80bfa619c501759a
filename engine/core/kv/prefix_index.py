"""Finds the stored prefix with the longest common part without comparing all of them."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator

from engine.core.kv.prefix import Prefix, StoredPrefix


class PrefixIndex:
    """Stored prefixes in lexicographic order, in which the one with the longest common part is a neighbour."""

    def __init__(self) -> None:
        self._ordered: dict[str | None, list[StoredPrefix]] = {}

    def add(self, stored: StoredPrefix) -> None:
        """Insert a prefix."""
        insort(self._ordered.setdefault(stored.prefix.partition, []), stored, key=_tokens)

    def remove(self, stored: StoredPrefix) -> None:
        """Remove a prefix."""
        ordered = self._ordered[stored.prefix.partition]
        ordered.remove(stored)
        if not ordered:
            del self._ordered[stored.prefix.partition]

    def nearest(self, wanted: Prefix) -> StoredPrefix | None:
        """Return the prefix with the longest common part."""
        ordered = self._ordered.get(wanted.partition, [])
        at = bisect_left(ordered, wanted.tokens[: wanted.size], key=_tokens)
        beside = ordered[max(at - 1, 0) : at + 1]
        return max(beside, key=lambda one: (one.prefix.common(wanted), -one.size), default=None)

    def longest_within(self, wanted: Prefix) -> StoredPrefix | None:
        """Return the longest stored prefix that `wanted` begins with."""
        return next(self.all_within(wanted), None)

    def all_within(self, wanted: Prefix) -> Iterator[StoredPrefix]:
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


def _tokens(stored: StoredPrefix) -> list[int]:
    return stored.prefix.tokens
