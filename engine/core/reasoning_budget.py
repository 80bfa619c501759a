"""The limit of a choice's reasoning: once it is used up, the end of the reasoning is forced."""

import math
from collections.abc import Iterable

from engine.core.reasoning_span import ReasoningSpan
from engine.request import Reasoning


class ReasoningBudget:
    """Follows the tokens of one choice. Only the first reasoning, at the beginning of the text, is limited."""

    def __init__(self, reasoning: Reasoning, ending: Iterable[int]) -> None:
        """Start at the beginning of a choice.

        Args:
            reasoning: the reasoning and its budget.
            ending: tokens that end the reasoning.
        """
        self._span = ReasoningSpan(reasoning)
        self._left = math.inf if reasoning.budget is None else reasoning.budget
        self._ending = list(ending)
        self._over = not self._ending

    @property
    def forced(self) -> int | None:
        """The only token that may come next, or None if any may."""
        return self._ending[0] if self._span.open and not self._over and self._left <= 0 else None

    def accept(self, piece: bytes) -> None:
        """Add the bytes of a drawn token, with the names of control tokens."""
        if self._over:
            return
        if self.forced is not None:
            self._ending.pop(0)
            self._over = not self._ending
            return
        self._left -= self._span.open
        self._span.accept(piece)
        self._over = self._span.over or self._span.closed
