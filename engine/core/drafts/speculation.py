"""Speculative decoding: the number of draft tokens that a decode step computes.

A draft token is only compared with the token drawn in its place. So the text is the same as without it; only the time
differs: a step with more rows takes longer and may yield more tokens.
"""

from collections import deque
from typing import TypeAlias

from engine.core.model import ModelTraits
from engine.core.sequence import Sequence
from engine.core.step import SCORED_AT_ONCE

LENGTHS = (1, 3, 7, 15)
"""Draft tokens of each row. The rows of a step then add up to powers of two, which llama.cpp has kernels for."""
_MIN_GAIN = 1.1
"""Expected speed with draft tokens, relative to the speed without, that makes them worthwhile."""
_NEARLY = 0.95
"""Expected speed of a shorter length, relative to the best one, that is good enough: fewer guesses are wrong."""
_RECENT = 5
"""Steps. The shortest of so many recent times counts: other processes make a step longer, and never shorter."""
_DECAY = 0.999
"""Applied to the time of a length that is too slow, so that it is tried again some hundred steps later."""
_CREDIT = 64.0
"""Draft tokens that may be rejected at first, and the most that can be saved up."""
_CREDIT_OF_DRAWN = 1 / 16
_CREDIT_OF_ACCEPTED = 8.0
"""Credit that tokens earn. So there is one wrong guess in 16 tokens where no guess is right, and where one of nine is
right they pay for themselves. This bound does not depend on measured times."""

DraftTokens: TypeAlias = tuple[int, ...]


class Speculator:
    """Chooses draft lengths by the measured time of a step and by the acceptance rates of its rows."""

    def __init__(self, traits: ModelTraits) -> None:
        """Start without measurements. `traits` are those of the model."""
        self._traits = traits
        self._times: dict[int, deque[float]] = {}
        self._credit = _CREDIT
        self._guesses = 0

    def observe(self, rows: int, seconds: float, *, drawn: int, accepted: int) -> None:
        """Record the decode step that was planned last.

        Args:
            rows: rows of the step, those of draft tokens included.
            seconds: its duration.
            drawn: tokens that it drew, accepted draft tokens included.
            accepted: accepted draft tokens.
        """
        self._times.setdefault(rows, deque(maxlen=_RECENT)).append(seconds)
        earned = _CREDIT_OF_DRAWN * drawn + _CREDIT_OF_ACCEPTED * accepted
        self._credit = min(_CREDIT, self._credit + earned - max(0, self._guesses - accepted))

    def draft(self, rows: list[Sequence]) -> list[DraftTokens]:
        """Return the draft tokens of each row of the next decode step: equally many for each row.

        Rows with equally many tokens share a weight pass. So a row without a draft is padded.
        """
        self._guesses = 0
        if not self._may_draft(rows):
            return [()] * len(rows)
        most = min(self._traits.max_draft, min(row.room for row in rows) - 1, SCORED_AT_ONCE // len(rows))
        drafts = [row.drafter.draft(row.tokens, LENGTHS[-1]) if row.drafter else [] for row in rows]
        length = self._best_length(rows, drafts, [length for length in LENGTHS if length <= most])
        return [_padded(draft, length, row.tokens[-1]) for row, draft in zip(rows, drafts, strict=True)]

    def _may_draft(self, rows: list[Sequence]) -> bool:
        """Return whether the next step may have draft tokens. `rows` are in ascending order of their slots."""
        if not self._traits.max_draft or any(row.pending > 1 for row in rows):
            return False
        neighbours = rows[-1].seq_id - rows[0].seq_id < len(rows)
        return neighbours or not self._traits.has_state

    def _best_length(self, rows: list[Sequence], drafts: list[list[int]], lengths: list[int]) -> int:
        """Return the length with the most expected tokens a second; 0 for no draft."""
        if not any(drafts) or not lengths:
            return 0
        speeds = {length: self._expected_speed(rows, drafts, length) for length in lengths}
        if all(row.request.speculative for row in rows):
            return max(lengths, key=speeds.__getitem__)
        if len(rows) not in self._times:
            return 0
        guesses = {length: sum(min(len(draft), length) for draft in drafts) for length in lengths}
        affordable = [length for length in lengths if guesses[length] <= self._credit]
        fastest = max((speeds[length] for length in affordable), default=0.0)
        if fastest > self._expected_speed(rows, drafts, 0) * _MIN_GAIN:
            best = next(length for length in affordable if speeds[length] >= fastest * _NEARLY)
            self._guesses = guesses[best]
            return best
        self._decay(len(rows), lengths)
        return 0

    def _expected_speed(self, rows: list[Sequence], drafts: list[list[int]], length: int) -> float:
        tokens = sum(
            expected_tokens(row.drafter.acceptance_rate if row.drafter else 0.0, min(len(draft), length))
            for row, draft in zip(rows, drafts, strict=True)
        )
        return tokens / self._expected_seconds(len(rows), length)

    def _expected_seconds(self, rows: int, length: int) -> float:
        """Return the time of a step with so many draft tokens for each row. An unknown one is as short as can be.

        It lies between the time of one step without them and that of one for each token, whatever was measured.
        """
        plain = min(self._times.get(rows, ()), default=1.0)
        measured = min(self._times.get(rows * (1 + length), ()), default=plain)
        return min(max(measured, plain), plain * (1 + length))

    def _decay(self, rows: int, lengths: list[int]) -> None:
        for count in (rows * (1 + length) for length in lengths):
            if count in self._times:
                self._times[count] = deque((seconds * _DECAY for seconds in self._times[count]), _RECENT)


def expected_tokens(acceptance_rate: float, drafted: int) -> float:
    """Return the tokens that a row yields: its own, and each draft token if all before it are accepted."""
    return sum(acceptance_rate**accepted for accepted in range(drafted + 1))


def _padded(draft: list[int], length: int, filler: int) -> DraftTokens:
    return tuple(draft[:length]) + (filler,) * (length - len(draft))
