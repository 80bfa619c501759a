"""The context of a sequence that goes on when its slot is full, by llama-server's rules."""

from dataclasses import dataclass

_ALWAYS_LEFT = 4
"""Tokens. So many at the end of a slot are never kept."""


@dataclass(frozen=True, slots=True)
class ContextWindow:
    """Which tokens of a full slot are discarded, so that more can be generated."""

    size: int
    """Tokens of a slot."""
    keep: int
    """Number of first tokens that always stay."""
    discard: int
    """Number of tokens that are discarded at once; 0 discards half of those that need not stay."""

    def is_full(self, cells: int) -> bool:
        """Return whether a slot with so many cells is full. The last cell is never used."""
        return cells + 1 >= self.size

    def gap(self, cells: int) -> tuple[int, int]:
        """Return which of so many cells are discarded: the first one, and their number, at least 1."""
        start = max(0, min(self.keep, self.size - _ALWAYS_LEFT))
        left = cells - start
        return start, max(1, min(self.discard or left // 2, left - 1))
