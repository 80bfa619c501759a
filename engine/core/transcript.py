"""What one choice says: its text as far as it is safe to show, and the tokens told with it."""

import math
from collections import deque
from collections.abc import Iterable

from engine.core.text import TextAssembler
from engine.core.token import Token
from engine.events import TokenDetail

_BEFORE_ALL = -1


class Transcript:
    """Joins tokens to text. A token is told with the text in which its own begins, never with what a stop string hides.

    A token that adds no whole character is told with the next text, or at the end.
    """

    def __init__(self, stop: Iterable[str], *, with_tokens: bool) -> None:
        self._assembler = TextAssembler(stop)
        self._with_tokens = with_tokens
        self._untaken: list[str] = []
        self._untold: deque[tuple[int, TokenDetail]] = deque()

    @property
    def stopped(self) -> str | None:
        """The stop string that ended the text, if one did."""
        return self._assembler.stopped

    def open(self, prompt: bytes, details: Iterable[TokenDetail]) -> None:
        """Begin with a prompt, all of whose tokens are told with the first text."""
        self._untaken.append(self._assembler.echo(prompt))
        self._untold.extend((_BEFORE_ALL, detail) for detail in details)

    def add(self, token: Token, *, may_stop: bool) -> None:
        """Take the next token; a stop string that it completes ends the text if it `may_stop`."""
        self._untaken.append(self._assembler.push(token.piece, may_stop=may_stop))
        if self._with_tokens:
            detail = TokenDetail(token.id, token.piece, token.logprob, token.top)
            self._untold.append((self._assembler.begin, detail))

    def take(self) -> tuple[str, tuple[TokenDetail, ...]]:
        """The text that came since it was last taken, and the tokens told with it: none if there is no text."""
        text = "".join(self._untaken)
        self._untaken.clear()
        return text, self._tell(self._assembler.shown) if text else ()

    def close(self) -> tuple[str, tuple[TokenDetail, ...]]:
        """All that is left at the choice's end."""
        self._untaken.append(self._assembler.flush())
        text = "".join(self._untaken)
        return text, self._tell(math.inf if self.stopped is None else self._assembler.shown)

    def _tell(self, end: float) -> tuple[TokenDetail, ...]:
        """The untold tokens whose text begins before a place in the text."""
        told = []
        while self._untold and self._untold[0][0] < end:
            told.append(self._untold.popleft()[1])
        return tuple(told)
