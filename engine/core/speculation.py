"""Whether a decode pass computes guesses behind its tokens, and how many (speculative decoding by prompt lookup).

A guess is only ever compared with the token drawn in its place. So what is drawn is what would be drawn without it, and
guesses change the time alone: a pass with more rows takes longer, and may yield more tokens.
"""

from engine.core.sequence import Sequence
from engine.core.step import SCORED_AT_ONCE

LENGTHS = (1, 3, 7, 15)
"""Guesses behind each token. The rows of a pass then count up to powers of two, for which kernels are made."""
_WORTH = 1.1
"""A pass with guesses must promise so many times the tokens a second of one without."""
_WEIGHT = 0.3
_FORGETTING = 0.999
"""What was too slow once is tried again, some hundred passes later."""

Draft = tuple[int, ...]


class Speculator:
    """Knows what passes cost by their rows, as measured, and what guesses are worth, as checked."""

    def __init__(self, *, can_trim: bool, by_default: bool) -> None:
        """`can_trim` says whether cells of wrong guesses can be dropped; else there are none.

        `by_default` says whether there are some where nobody asked for them, and they are faster.
        """
        self._can_trim = can_trim
        self._by_default = by_default
        self._seconds: dict[int, float] = {}

    def observe(self, rows: int, seconds: float) -> None:
        """Learn from a decode pass."""
        known = self._seconds.get(rows, seconds)
        self._seconds[rows] = known + _WEIGHT * (seconds - known)

    def draft(self, rows: list[Sequence]) -> list[Draft]:
        """Guesses behind each row of the coming decode pass: as many for each, or none.

        Rows with equally many tokens share a walk over the weights. So a row without a guess gets a wrong one.
        """
        if not self._can_trim or any(row.pending > 1 for row in rows):
            return [()] * len(rows)
        most = min(min(row.left for row in rows) - 1, SCORED_AT_ONCE // len(rows))
        guesses = [self._guess(row) for row in rows]
        length = self._best_length(rows, guesses, [length for length in LENGTHS if length <= most])
        return [_padded(guess, length, row.tokens[-1]) for row, guess in zip(rows, guesses, strict=True)]

    def _guess(self, row: Sequence) -> list[int]:
        if row.drafter is None or not (row.speculates or self._by_default):
            return []
        return row.drafter.guess(row.tokens, LENGTHS[-1])

    def _best_length(self, rows: list[Sequence], guesses: list[list[int]], lengths: list[int]) -> int:
        """The one that promises most tokens a second; 0 for none."""
        if not any(guesses) or not lengths:
            return 0
        plain = len(rows) / self._expected_seconds(len(rows))
        speeds = {length: self._expected_speed(rows, guesses, length) for length in lengths}
        best = max(lengths, key=speeds.__getitem__)
        if speeds[best] > plain * _WORTH or all(row.speculates for row in rows):
            return best
        self._forget(len(rows), lengths)
        return 0

    def _expected_speed(self, rows: list[Sequence], guesses: list[list[int]], length: int) -> float:
        tokens = sum(
            expected_tokens(row.drafter.chance if row.drafter else 0.0, min(len(guess), length))
            for row, guess in zip(rows, guesses, strict=True)
        )
        return tokens / self._expected_seconds(len(rows) * (1 + length))

    def _expected_seconds(self, rows: int) -> float:
        """What has never been measured is tried: it is expected to take no longer than fewer rows."""
        fewer = [seconds for known, seconds in self._seconds.items() if known <= rows]
        return self._seconds.get(rows) or max(fewer, default=1.0)

    def _forget(self, rows: int, lengths: list[int]) -> None:
        for length in lengths:
            if (count := rows * (1 + length)) in self._seconds:
                self._seconds[count] *= _FORGETTING


def expected_tokens(chance: float, guesses: int) -> float:
    """Tokens that a row yields: its own, and each guess where all before it were right."""
    return sum(chance**right for right in range(guesses + 1))


def _padded(guess: list[int], length: int, filler: int) -> Draft:
    return tuple(guess[:length]) + (filler,) * (length - len(guess))
