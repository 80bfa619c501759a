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
_MIN_GAIN_WITH_REPEATS = 1.3
"""The same where a rejection takes another step: a wrong estimate costs more there."""
_MOST_DELAY = 1.1
"""Time of a step with draft tokens for each token that a row may expect of it, relative to a step without them. So
neither a row nor a prompt waits for the drafts of others: a step of two rows with 15 draft tokens each can take three
times as long on a CPU."""
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
_ROWS_AT_ONCE = 8
"""Rows. A look for drafts takes time for each row, so after a step without any, so many rows wait for one more step."""

DraftTokens: TypeAlias = tuple[int, ...]


class Speculator:
    """Chooses draft lengths by the measured time of a step and by the acceptance rates of its rows."""

    def __init__(self, traits: ModelTraits) -> None:
        """Start without measurements. `traits` are those of the model."""
        self._traits = traits
        self._times: dict[int, deque[float]] = {}
        self._credit = _CREDIT
        self._guesses = 0
        self._pause = 0

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

    def draft(self, rows: list[Sequence], running: int) -> list[DraftTokens]:
        """Return the draft tokens of each row of the next decode step: equally many for each row.

        Rows with equally many tokens share a weight pass. So a row without a draft is padded.

        Args:
            rows: the sequences, in ascending order of their slots.
            running: number of all sequences that run. Those that are no rows wait for the step.
        """
        self._guesses = 0
        if self._pause:
            self._pause -= 1
            return [()] * len(rows)
        if not any(row.drafter for row in rows) or not self._may_draft(rows, running):
            return [()] * len(rows)
        drafts = [row.drafter.draft(row.tokens, LENGTHS[-1]) if row.drafter else [] for row in rows]
        length = self._best_length(rows, drafts, waits=running > len(rows)) if any(drafts) else 0
        if not length:
            self._pause = len(rows) // _ROWS_AT_ONCE
            return [()] * len(rows)
        return [_padded(draft, length, row.tokens[-1]) for row, draft in zip(rows, drafts, strict=True)]

    def _may_draft(self, rows: list[Sequence], running: int) -> bool:
        """Return whether the next step may have draft tokens.

        Not the step that computes the end of a prompt where that is a checkpoint: its state is saved after the step.
        """
        if not self._traits.max_draft:
            return False
        if self._traits.needs_checkpoints and any(row.unread for row in rows):
            return False
        if self._traits.drops_steps and running > 1:  # others would wait for what is computed again
            return False
        neighbours = rows[-1].seq_id - rows[0].seq_id < len(rows)
        return neighbours or not self._traits.has_state

    def _best_length(self, rows: list[Sequence], drafts: list[list[int]], *, waits: bool) -> int:
        """Return the length with the most expected tokens a second; 0 for no draft.

        `waits` is whether a sequence waits for the step that is no row of it.
        """
        most = min(self._traits.max_draft, min(row.room for row in rows) - 1, SCORED_AT_ONCE // len(rows))
        if self._traits.drops_steps:  # a padded draft is always rejected
            most = min(most, *map(len, drafts))
        lengths = [length for length in LENGTHS if length <= most]
        if not lengths:
            return 0
        if all(row.request.speculative for row in rows):
            return max(lengths, key=lambda length: self._expected_speed(rows, drafts, length))
        if len(rows) not in self._times:
            return 0
        drafted = list(filter(None, map(len, drafts)))
        guesses = {length: sum([min(tokens, length) for tokens in drafted]) for length in lengths}
        enough = len(rows) * (_MIN_GAIN - 1.0)  # if all are right, and the step takes no longer
        affordable = [
            length
            for length in lengths
            if enough < guesses[length] <= self._credit and not self._delays_others(rows, length, waits=waits)
        ]
        speeds = {length: self._expected_speed(rows, drafts, length) for length in affordable}
        fastest = max(speeds.values(), default=0.0)
        least = _MIN_GAIN_WITH_REPEATS if self._traits.drops_steps else _MIN_GAIN
        if affordable and fastest > self._expected_speed(rows, drafts, 0) * least:
            best = next(length for length in affordable if speeds[length] >= fastest * _NEARLY)
            self._guesses = guesses[best]
            return best
        self._decay(len(rows), lengths)
        return 0

    def _expected_speed(self, rows: list[Sequence], drafts: list[list[int]], length: int) -> float:
        if self._traits.drops_steps and length and rows[0].drafter:
            return self._speed_with_repeats(rows[0].drafter.acceptance_rate, length)
        tokens = len(rows) + sum(
            expected_tokens(row.drafter.acceptance_rate, min(len(draft), length)) - 1
            for row, draft in zip(rows, drafts, strict=True)
            if draft and row.drafter
        )
        return tokens / self._expected_seconds(len(rows), length)

    def _delays_others(self, rows: list[Sequence], length: int, *, waits: bool) -> bool:
        """Return whether draft tokens would clearly delay the tokens of a row, or a sequence that waits for the step.

        A row that only has no draft at the moment counts by its acceptance rate, too.
        """
        rate = 0.0 if waits else min(row.drafter.acceptance_rate if row.drafter else 0.0 for row in rows)
        most = self._expected_seconds(len(rows), 0) * expected_tokens(rate, length) * _MOST_DELAY
        return self._expected_seconds(len(rows), length) > most

    def _speed_with_repeats(self, acceptance_rate: float, length: int) -> float:
        """Return the expected speed of one row if a rejection takes another step for what is computed again.

        That step draws one more token. It has no more rows, so that it takes no longer.
        """
        repeats = 1.0 - acceptance_rate**length
        tokens = expected_tokens(acceptance_rate, length) + repeats
        return tokens / (self._expected_seconds(1, length) * (1.0 + repeats))

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
    if acceptance_rate == 1.0:
        return drafted + 1
    return (1.0 - acceptance_rate ** (drafted + 1)) / (1.0 - acceptance_rate)


def _padded(draft: list[int], length: int, filler: int) -> DraftTokens:
    return tuple(draft[:length]) + (filler,) * (length - len(draft))
