"""The end of a choice's reasoning, which is forced once its budget is used up or its client asks for it."""

import math
from codecs import getincrementaldecoder
from collections.abc import Iterable, Sequence

from engine.core.output.reasoning_span import ReasoningSpan
from engine.request import Reasoning

_Decoder = getincrementaldecoder("utf-8")


class ReasoningBudget:
    """Follows the tokens of one choice. Only the first reasoning, at the beginning of the text, is limited.

    The end is not forced within a character, nor before the constraints of the request allow it.
    """

    def __init__(self, reasoning: Reasoning, ending: Iterable[int]) -> None:
        """Start at the beginning of a choice.

        Args:
            reasoning: the reasoning and its budget.
            ending: tokens that end the reasoning.
        """
        self._span = ReasoningSpan(reasoning)
        self._left = math.inf if reasoning.budget is None else reasoning.budget
        self._ending = list(ending)
        self._characters = _Decoder("replace")
        self._over = not self._ending
        self._ended = False

    @property
    def due(self) -> Sequence[int]:
        """The tokens to force next, because they end the reasoning. Empty while it may go on."""
        due = self._span.open and not self._over and (self._ended or self._left <= 0)
        return self._ending if due and not self._within_character else ()

    def end(self) -> None:
        """End reasoning that has begun. Any thread may call this."""
        self._ended = self._span.open

    def accept(self, piece: bytes, *, forced: bool) -> None:
        """Add the bytes of a drawn token, with the names of control tokens.

        `forced` is true if the token was the first that is due: `end` may have been called since it was drawn.
        """
        if self._over:
            return
        if forced:
            self._ending.pop(0)
            self._over = not self._ending
            return
        if self._span.open:
            self._left -= 1
            self._characters.decode(piece)
        self._span.accept(piece)
        self._over = self._span.over or self._span.closed

    @property
    def _within_character(self) -> bool:
        return bool(self._characters.getstate()[0])
