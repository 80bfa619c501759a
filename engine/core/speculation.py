"""Speculative decoding: the number of draft tokens that a decode step computes.

A draft token is only compared with the token drawn in its place. So the text is the same as without it; only the time
differs: a step with more rows takes longer and may yield more tokens.
"""

from typing import TypeAlias

from engine.core.sequence import Sequence
from engine.core.step import SCORED_AT_ONCE

LENGTHS = (1, 3, 7, 15)
"""Draft tokens of each row. The rows of a step then add up to powers of two, which llama.cpp has kernels for."""
_MIN_GAIN = 1.1
"""Expected speed with draft tokens, relative to the speed without, that makes them worthwhile."""
_WEIGHT = 0.3
_DECAY = 0.999
"""Applied to the time of a length that is too slow, so that it is tried again some hundred steps later."""

DraftTokens: TypeAlias = tuple[int, ...]


class Speculator:
    """Chooses draft lengths by the measured time of a step and by the acceptance rates of its rows."""

    def __init__(self, *, can_trim: bool) -> None:
        """Start without measurements.

        Args:
            can_trim: whether the cells of rejected draft tokens can be dropped; if not, there are no draft tokens.
        """
        self._can_trim = can_trim
        self._seconds: dict[int, float] = {}

    def observe(self, rows: int, seconds: float) -> None:
        """Record the time of a decode step."""
        known = self._seconds.get(rows, seconds)
        self._seconds[rows] = known + _WEIGHT * (seconds - known)

    def draft(self, rows: list[Sequence]) -> list[DraftTokens]:
        """Return the draft tokens of each row of the next decode step: equally many for each row.

        Rows with equally many tokens share a weight pass. So a row without a draft is padded.
        """
        if not self._can_trim or any(row.pending > 1 for row in rows):
            return [()] * len(rows)
        most = min(min(row.left for row in rows) - 1, SCORED_AT_ONCE // len(rows))
        drafts = [row.drafter.draft(row.tokens, LENGTHS[-1]) if row.drafter else [] for row in rows]
        length = self._best_length(rows, drafts, [length for length in LENGTHS if length <= most])
        return [_padded(draft, length, row.tokens[-1]) for row, draft in zip(rows, drafts, strict=True)]

    def _best_length(self, rows: list[Sequence], drafts: list[list[int]], lengths: list[int]) -> int:
        """Return the length with the most expected tokens a second; 0 for no draft."""
        if not any(drafts) or not lengths:
            return 0
        plain = len(rows) / self._expected_seconds(len(rows))
        speeds = {length: self._expected_speed(rows, drafts, length) for length in lengths}
        best = max(lengths, key=speeds.__getitem__)
        if speeds[best] > plain * _MIN_GAIN or all(row.request.speculative for row in rows):
            return best
        self._decay(len(rows), lengths)
        return 0

    def _expected_speed(self, rows: list[Sequence], drafts: list[list[int]], length: int) -> float:
        tokens = sum(
            expected_tokens(row.drafter.acceptance_rate if row.drafter else 0.0, min(len(draft), length))
            for row, draft in zip(rows, drafts, strict=True)
        )
        return tokens / self._expected_seconds(len(rows) * (1 + length))

    def _expected_seconds(self, rows: int) -> float:
        """Return the time of so many rows. An unknown number counts as fast as fewer rows, so that it is tried."""
        fewer = [seconds for known, seconds in self._seconds.items() if known <= rows]
        return self._seconds.get(rows) or max(fewer, default=1.0)

    def _decay(self, rows: int, lengths: list[int]) -> None:
        for length in lengths:
            if (count := rows * (1 + length)) in self._seconds:
                self._seconds[count] *= _DECAY


def expected_tokens(acceptance_rate: float, drafted: int) -> float:
    """Return the tokens that a row yields: its own, and each draft token if all before it are accepted."""
    return sum(acceptance_rate**accepted for accepted in range(drafted + 1))


def _padded(draft: list[int], length: int, filler: int) -> DraftTokens:
    return tuple(draft[:length]) + (filler,) * (length - len(draft))
