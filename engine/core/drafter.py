"""Guesses what follows in a text from what it says already (prompt lookup, Saxena 2023; vLLM's `ngram` method)."""

from itertools import takewhile

NGRAM = 3
"""Tokens. Where the last so many of a text stood before, what followed them there is the guess."""
INDEXED_AT_ONCE = 4096
"""Tokens. A long prompt is taken note of in parts, before as many passes, so that none of them waits for it."""
_PATIENCE = 0.25
"""How much the last guess counts in the chance of the next."""
_BORDER = -1


class Drafter:
    """Guesses for one sequence, and checks every guess against what was drawn, used or not.

    Attributes:
        chance: of a guessed token to be drawn, as far as the last ones tell; 0 before the first.
    """

    def __init__(self, prediction: list[int]) -> None:
        """`prediction` is text, as tokens, that the answer may repeat."""
        self._text = [*prediction, _BORDER] if prediction else []
        self._ahead = len(self._text)
        self._follows: dict[tuple[int, ...], int] = {}
        self._indexed = 0
        self._guess: list[int] = []
        self.chance = 0.0

    def guess(self, tokens: list[int], most: int) -> list[int]:
        """Up to `most` tokens that may follow; `tokens` are all that are known of the text, more each time."""
        drawn = tokens[len(self._text) - self._ahead :]
        self._check(drawn)
        self._text += drawn
        self._index()
        self._guess = self._look_up(most)
        return self._guess

    def _check(self, drawn: list[int]) -> None:
        for guessed, token in zip(self._guess, drawn, strict=False):  # there may be more or fewer
            self.chance += _PATIENCE * ((guessed == token) - self.chance)
            if guessed != token:
                return

    def _index(self) -> None:
        """Note what follows each run of tokens, save the last, which nothing follows yet; the latest place counts."""
        text, begin = self._text, self._indexed
        last = min(max(len(text) - NGRAM, begin), begin + INDEXED_AT_ONCE)
        runs = zip(*(text[begin + at : last + at] for at in range(NGRAM)), strict=True)
        self._follows.update(zip(runs, range(begin + NGRAM, last + NGRAM), strict=True))
        self._indexed = last

    def _look_up(self, most: int) -> list[int]:
        """What followed; where that runs into the end of the text, as if the text went round from there."""
        at = self._follows.get(tuple(self._text[-NGRAM:]))
        if at is None:
            return []
        period = len(self._text) - at
        around = (self._text[at + step % period] for step in range(most))
        return list(takewhile(lambda token: token != _BORDER, around))
