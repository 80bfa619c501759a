"""Draft tokens by prompt lookup (Saxena 2023; vLLM's `ngram` method)."""

from engine.request import GenerationRequest

NGRAM = 3
"""Tokens. Where the last n-gram of a text occurred before, the tokens that followed it are the draft."""
INDEXED_AT_ONCE = 4096
"""Tokens. A long prompt is indexed in parts, before as many steps, so that no step waits for all of it."""
MOST_SLOTS = 8
"""Full slots of tokens. A text that goes on for days is remembered no further back, at 180 bytes a token."""
_RATE_WEIGHT = 0.25
"""Weight of the last draft token in the acceptance rate."""
_BORDER = -1


class NgramDrafter:
    """Drafts tokens for one sequence and compares every draft with the drawn tokens, whether it was computed or not."""

    acceptance_rate: float
    """Moving average of the share of draft tokens that were drawn; 0 before the first."""

    def __init__(self, prediction: list[int]) -> None:
        """Start without drafts. `prediction` is a tokenised text that the answer may repeat."""
        self.acceptance_rate = 0.0
        self._text = [*prediction, _BORDER] if prediction else []
        self._ahead = len(self._text)
        self._follows: dict[tuple[int, ...], int] = {}
        self._indexed = 0
        self._draft: list[int] = []

    def draft(self, tokens: list[int], most: int) -> list[int]:
        """Return up to `most` tokens that may follow `tokens`, which extend those of the last call."""
        self._read(tokens)
        at = self._follows.get(tuple(self._text[-NGRAM:]))
        self._draft = [] if at is None else self._repeat(at, most)
        return self._draft

    def discard(self, tokens: list[int], count: int) -> None:
        """Expect so many tokens less from the next call on. `tokens` extend those of the last one.

        Discarded tokens can still be repeated, except very old ones. The rest of the last draft is not compared any
        more.
        """
        self._read(tokens)
        self._ahead += count
        self._draft = []
        if len(self._text) > MOST_SLOTS * len(tokens):
            self._forget(len(self._text) // 2)

    def _forget(self, count: int) -> None:
        """Forget the oldest tokens. The others are indexed again."""
        del self._text[:count]
        self._ahead -= count
        self._follows, self._indexed = {}, 0

    def _read(self, tokens: list[int]) -> None:
        drawn = tokens[len(self._text) - self._ahead :]
        self._compare(drawn)
        self._text += drawn
        self._index()

    def _compare(self, drawn: list[int]) -> None:
        for drafted, token in zip(self._draft, drawn, strict=False):  # there may be more or fewer
            self.acceptance_rate += _RATE_WEIGHT * ((drafted == token) - self.acceptance_rate)
            if drafted != token:
                return

    def _index(self) -> None:
        """Index each n-gram except the last, which has no next token yet. The latest occurrence wins."""
        text, begin = self._text, self._indexed
        if len(text) - begin == NGRAM + 1:  # as after most steps
            self._follows[tuple(text[begin:-1])] = begin + NGRAM
            self._indexed += 1
            return
        last = min(max(len(text) - NGRAM, begin), begin + INDEXED_AT_ONCE)
        ngrams = zip(*(text[begin + at : last + at] for at in range(NGRAM)), strict=True)
        self._follows.update(zip(ngrams, range(begin + NGRAM, last + NGRAM), strict=True))
        self._indexed = last

    def _repeat(self, at: int, most: int) -> list[int]:
        """Return the tokens from `at` on; beyond the end of the text they repeat from there."""
        tokens = self._text[at : at + most]
        while len(tokens) < most:
            tokens += tokens[: most - len(tokens)]
        return tokens[: tokens.index(_BORDER)] if _BORDER in tokens else tokens


def drafter_of(request: GenerationRequest, seed: int | None, prediction: list[int]) -> NgramDrafter | None:
    """Return the drafter of a choice, if it may have drafts. By default a choice with a seed has none."""
    drafts = seed is None if request.speculative is None else request.speculative
    return NgramDrafter(prediction) if drafts else None
