"""The output of one choice: its text as far as it can be sent, and the details of its tokens."""

import math
from collections import deque
from collections.abc import Iterable

from engine.core.output.text import TextAssembler
from engine.core.token import Token
from engine.events import TokenDetail

DETAILS_AT_ONCE = 2**15
"""Tokens and alternatives of one event, about 700 KB: so many are sent, also of a choice that is not streamed. The
whole answers of one step may be longer than a frame."""
_BEFORE_TEXT = -1


class Transcript:
    """Joins tokens to text, and pairs each token with the text in which its own begins.

    A token that completes no character comes with the next text, or at the end. Tokens hidden by a stop string never
    come.
    """

    def __init__(self, stop: Iterable[str], *, with_tokens: bool) -> None:
        self._assembler = TextAssembler(stop)
        self._with_tokens = with_tokens
        self._text: list[str] = []
        self._details: deque[tuple[int, TokenDetail]] = deque()
        self._waiting = 0  # tokens and alternatives
        self._whole = True

    @property
    def stopped(self) -> str | None:
        """The stop string that ended the text, if any."""
        return self._assembler.stopped

    @property
    def is_long(self) -> bool:
        """True if the text should be taken, because its tokens have many details."""
        return self._waiting >= DETAILS_AT_ONCE

    def open(self, prompt: bytes, details: Iterable[TokenDetail]) -> None:
        """Begin with a prompt. All its tokens come with the first text."""
        self._text.append(self._assembler.echo(prompt))
        self._details.extend((_BEFORE_TEXT, detail) for detail in details)

    def add(self, token: Token, *, may_stop: bool) -> str:
        """Add the next token and return the text that can be sent now.

        A stop string that it completes ends the text if it `may_stop`.
        """
        text = self._assembler.push(token.piece, may_stop=may_stop)
        self._text.append(text)
        if detail := self.detail(token):
            self._details.append((self._assembler.begin, detail))
            self._waiting += 1 + len(token.top)
        return text

    def detail(self, token: Token) -> TokenDetail | None:
        """Return the details of a token, if they are wanted."""
        return TokenDetail(token.id, token.piece, token.logprob, token.top) if self._with_tokens else None

    def cut(self, characters: int) -> None:
        """End the text so many characters before the end of what the last token added. `close` comes next."""
        self._whole = False
        self._assembler.cut(characters)
        self._text.append(self._text.pop()[: -characters or None])

    def take(self) -> tuple[str, tuple[TokenDetail, ...]]:
        """Return the new text and its token details; no details without text."""
        text = "".join(self._text)
        self._text.clear()
        if text:
            self._waiting = 0
        return text, self._take_details(self._assembler.shown) if text and self._details else ()

    def close(self) -> tuple[str, tuple[TokenDetail, ...]]:
        """Return the remaining text and token details at the end of the choice."""
        self._text.append(self._assembler.flush())
        text = "".join(self._text)
        whole = self._whole and self.stopped is None
        return text, self._take_details(math.inf if whole else self._assembler.shown)

    def _take_details(self, end: float) -> tuple[TokenDetail, ...]:
        """Return the remaining tokens that begin before a position in the text."""
        taken = []
        while self._details and self._details[0][0] < end:
            taken.append(self._details.popleft()[1])
        return tuple(taken)
