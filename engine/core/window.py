"""The context of a sequence that goes on when its slot is full, by llama-server's rules."""

from dataclasses import dataclass

_LEAST_MOVABLE = 8
"""At least this fraction of a slot need not stay, and at least half of that is discarded at once.

llama.cpp computes all cells of all slots for a shift: 0.25 s for 4,096 cells of a model of Qwen3-0.6B's shape on two
cores. So one request must not shift with every token.
"""
_ALWAYS_LEFT = 4
"""Tokens. So many at the end of the smallest slot are never kept."""


@dataclass(frozen=True, slots=True)
class ContextWindow:
    """Which tokens of a full slot are discarded, so that more can be generated."""

    size: int
    """Tokens of a slot."""
    keep: int
    """Number of first tokens that stay, if that leaves enough others."""
    discard: int
    """Number of tokens that are discarded at once, if it is enough; 0 discards half of those that need not stay."""

    def is_full(self, cells: int) -> bool:
        """Return whether a slot with so many cells is full. The last cell is never used."""
        return cells + 1 >= self.size

    def gap(self, cells: int) -> tuple[int, int]:
        """Return which of so many cells are discarded: the first one, and their number, at least 1."""
        movable = max(_ALWAYS_LEFT, self.size // _LEAST_MOVABLE)
        start = max(0, min(self.keep, self.size - movable))
        left = cells - start
        wanted = max(self.discard, movable // 2) if self.discard else left // 2
        return start, max(1, min(wanted, left - 1))
