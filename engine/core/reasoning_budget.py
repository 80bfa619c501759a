"""The limit of a choice's reasoning: once it is used up, the end of the reasoning is forced."""

from collections.abc import Iterable

from engine.request import Reasoning


class ReasoningBudget:
    """Follows the tokens of one choice. Only reasoning at the beginning of the text counts.

    The tags are found in the text, because a model may spell them with other tokens than its vocabulary's.
    """

    def __init__(self, reasoning: Reasoning, ending: Iterable[int]) -> None:
        """Start at the beginning of a choice.

        Args:
            reasoning: the reasoning and its budget.
            ending: tokens that end the reasoning.
        """
        self._opening, self._closing = reasoning.opening.encode(), reasoning.closing.encode()
        self._open, self._left = reasoning.opened, reasoning.budget
        self._ending = list(ending)
        self._text = b""
        self._over = not self._ending

    @property
    def forced(self) -> int | None:
        """The only token that may come next, or None if any may."""
        return self._ending[0] if self._open and not self._over and self._left <= 0 else None

    def accept(self, piece: bytes) -> None:
        """Add the bytes of a drawn token, with the names of control tokens."""
        if self._over:
            return
        if self.forced is not None:
            self._ending.pop(0)
            self._over = not self._ending
        elif self._open:
            self._left -= 1
            self._text = self._text[-len(self._closing) :] + piece
            self._over = self._closing in self._text
        else:
            self._begin(piece)

    def _begin(self, piece: bytes) -> None:
        """Look for the opening tag, before which there may be only whitespace."""
        self._text = (self._text + piece).lstrip()
        if self._text.startswith(self._opening):
            self._open, self._text = True, self._text[len(self._opening) :]
        else:
            self._over = not self._opening.startswith(self._text)
