"""Texts of single tokens in the text of a choice."""

import codecs
from collections.abc import Iterator, Sequence

from engine import TokenDetail


class TokenTexts:
    """Splits the text of a choice by its tokens, at once or incrementally."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def split(self, text: str, tokens: Sequence[TokenDetail]) -> Iterator[tuple[str, TokenDetail | None]]:
        """Yield the text of each of the next tokens with the token, or the whole text with None without tokens.

        A character of several tokens comes with the last one of them. The last text lacks what a stop string hides.
        """
        at = 0
        for token in tokens[:-1]:
            end = at + len(self._decoder.decode(token.piece))
            yield text[at:end], token
            at = end
        if tokens:
            self._decoder.decode(tokens[-1].piece)
        yield text[at:], tokens[-1] if tokens else None
