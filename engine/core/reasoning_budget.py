"""The end of a choice's reasoning, which is forced once its budget is used up or its client asks for it."""

import math
from codecs import getincrementaldecoder
from collections.abc import Iterable

from engine.request import Reasoning

_Decoder = getincrementaldecoder("utf-8")


class ReasoningBudget:
    """Follows the tokens of one choice. Only reasoning at the beginning of the text counts.

    The tags are found in the text, because a model may spell them with other tokens than its vocabulary's. The end is
    not forced within a character.
    """

    def __init__(self, reasoning: Reasoning, ending: Iterable[int]) -> None:
        """Start at the beginning of a choice.

        Args:
            reasoning: the reasoning and its budget.
            ending: tokens that end the reasoning.
        """
        self._opening, self._closing = reasoning.opening.encode(), reasoning.closing.encode()
        self._open = reasoning.opened
        self._left = math.inf if reasoning.budget is None else reasoning.budget
        self._ending = list(ending)
        self._text = b""
        self._characters = _Decoder("replace")
        self._over = not self._ending
        self._ended = False

    @property
    def forced(self) -> int | None:
        """The only token that may come next, or None if any may."""
        due = self._open and not self._over and (self._ended or self._left <= 0)
        return self._ending[0] if due and not self._within_character else None

    def end(self) -> None:
        """End reasoning that has begun. Any thread may call this."""
        self._ended = self._open

    def accept(self, piece: bytes) -> None:
        """Add the bytes of a drawn token, with the names of control tokens."""
        if self._over:
            return
        if self.forced is not None:
            self._ending.pop(0)
            self._over = not self._ending
        elif self._open:
            self._left -= 1
            self._characters.decode(piece)
            self._text = self._text[-len(self._closing) :] + piece
            self._over = self._closing in self._text
        else:
            self._begin(piece)

    @property
    def _within_character(self) -> bool:
        return bool(self._characters.getstate()[0])

    def _begin(self, piece: bytes) -> None:
        """Look for the opening tag, before which there may be only whitespace."""
        self._text = (self._text + piece).lstrip()
        if self._text.startswith(self._opening):
            self._open, self._text = True, self._text[len(self._opening) :]
        else:
            self._over = not self._opening.startswith(self._text)
