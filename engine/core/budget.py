"""The number of prompt tokens in one step, chosen so that the step keeps to a target time."""

from collections import deque
from statistics import median

SMALLEST = 64
"""Tokens. The default of the smallest efficient chunk."""
UNHURRIED = 256
"""Tokens of a step that delays no other sequence. Larger ones gain a few percent of speed, but an abort takes longer:
llama.cpp checks for it between two matrix products."""
_PATIENCE = 10.0
"""Seconds of a step that delays no other sequence. One of a minute looks like an engine that hangs, and ends it."""
LARGEST = 2048
"""Tokens. The default of the maximum of one call to llama.cpp."""
_MEASURABLE = 32  # tokens
_BAND = 512
"""Tokens. A token costs more the more tokens precede it, so rates are measured for each band of depths."""
_SHARED_SECONDS = 8
"""Duration of a step with several prompts, in decode steps. Each of them has its first token only after the step, and
streams wait for it, while a decode step more costs an eighth of it."""
_SHARED_CHUNKS = 2
"""Smallest chunks for which several prompts may share a step in any case: short prompts share weight passes."""
_NEARLY_A_TILE = 4
"""Divisor of a tile. One more tile is computed if all of it but such a part fits, because a larger step takes less time
a token: on a CPU 128 tokens take 1.75 times as long as 64."""
_RECENT = 5
"""Steps. The median of so many recent rates counts, so that one step that other processes delayed has no effect."""


class PromptBudget:
    """Measures the rate of prompt steps and sizes the next one, for the target time and relative to decode steps."""

    def __init__(
        self, target_seconds: float, smallest: int = SMALLEST, *, tile: int = 1, largest: int = LARGEST
    ) -> None:
        """Start without measurements.

        Args:
            target_seconds: duration to which a step that delays others is sized.
            smallest: tokens below which a smaller chunk takes no less time.
            tile: as `ModelTraits.prefill_tile`. A step has whole tiles.
            largest: maximum number of tokens.
        """
        self._target = target_seconds
        self._smallest = smallest
        self._tile = tile
        self._largest = largest
        self._rates: dict[int, deque[float]] = {}
        self._decodes: deque[float] = deque(maxlen=_RECENT)

    def observe(self, tokens: int, seconds: float, *, depth: int = 0) -> None:
        """Record a prompt step. Small steps are ignored, because the weight pass dominates their duration.

        Args:
            tokens: tokens computed.
            seconds: duration of the step.
            depth: tokens before each of its own, on average.
        """
        if tokens < min(self._smallest, _MEASURABLE) or seconds <= 0:
            return
        self._rates.setdefault(depth // _BAND, deque(maxlen=_RECENT)).append(tokens / seconds)

    def observe_decode(self, seconds: float) -> None:
        """Record a decode step."""
        self._decodes.append(seconds)

    def shared_tokens(self, depth: int) -> int:
        """Return the maximum number of tokens of a step that computes several prompts, or parts of them.

        Args:
            depth: as in `observe`.
        """
        rate = self._rate(depth // _BAND)
        if rate is None or not self._decodes:
            return self._largest
        return max(int(rate * _SHARED_SECONDS * median(self._decodes)), _SHARED_CHUNKS * self._smallest)

    def tokens(self, *, hurried: bool, depth: int = 0, steps: int = 1) -> int:
        """Return the number of tokens for the next prompt step.

        Args:
            hurried: whether other sequences wait for the step.
            depth: as in `observe`.
            steps: number of prompt steps for which other sequences wait. They share the target time.
        """
        rate = self._rate(depth // _BAND)
        if rate is None:
            return min(self._largest, self._smallest)
        fitting = int(rate * self._target / steps)
        tiles = (fitting + self._tile // _NEARLY_A_TILE) // self._tile
        least = self._smallest if hurried else max(min(UNHURRIED, int(rate * _PATIENCE)), self._smallest)
        return min(self._largest, max(tiles * self._tile, least))

    def _rate(self, band: int) -> float | None:
        """Return tokens a second in a band, or in the nearest one with a measurement."""
        nearest = min(self._rates, key=lambda known: abs(known - band), default=None)
        return None if nearest is None else median(self._rates[nearest])
