"""The reasoning in the text of a choice: whether it is open, and the number of its tokens."""

from collections import deque

from engine.request import Reasoning


class ReasoningSpan:
    """Follows the tokens of one choice. Only reasoning before any other text counts.

    The tags are found in the text, because a model may spell them with other tokens than its vocabulary's.
    """

    def __init__(self, reasoning: Reasoning) -> None:
        """Start at the beginning of a choice."""
        self.open = reasoning.opened
        """True inside reasoning."""
        self.over = False
        """True once no reasoning can follow."""
        self.closed = False
        """True once reasoning has ended."""
        self.tokens = 0
        """Number of tokens of reasoning, without those of the tags."""
        beginnings = (reasoning.opening, reasoning.between + reasoning.opening)
        self._openings = {opening.lstrip().encode() for opening in beginnings}
        self._ends = [end.encode() for end in (reasoning.closing, reasoning.call) if end]
        self._longest = max(map(len, self._ends))
        self._text = b""
        self._lengths = deque[int](maxlen=self._longest)  # in bytes, of the last tokens of reasoning

    def accept(self, piece: bytes) -> None:
        """Add the bytes of a token, with the names of control tokens."""
        if self.over:
            return
        if self.open:
            self._inside(piece)
        else:
            self._before(piece)

    def _inside(self, piece: bytes) -> None:
        self.tokens += 1
        self._lengths.append(len(piece))
        self._text = self._text[-self._longest :] + piece
        if found := [at for end in self._ends if (at := self._text.find(end)) >= 0]:
            self._close(len(self._text) - min(found))

    def _close(self, behind: int) -> None:
        """End the reasoning, behind which text began so many bytes ago. Tokens that began in that do not count."""
        while self._lengths and behind >= self._lengths[-1]:
            behind -= self._lengths.pop()
            self.tokens -= 1
        self._lengths.clear()
        self.open, self.closed, self._text = False, True, b""

    def _before(self, piece: bytes) -> None:
        """Look for the opening tag, before which there may be only whitespace."""
        self._text = (self._text + piece).lstrip()
        found = next((opening for opening in self._openings if self._text.startswith(opening)), None)
        if found is not None:
            self.open, self._text = True, self._text[len(found) :]
        else:
            self.over = not any(opening.startswith(self._text) for opening in self._openings)
