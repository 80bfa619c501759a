"""Histogram of a value that is measured often."""

from bisect import bisect_left
from collections.abc import Sequence
from operator import add

TOKEN_GAPS = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
)
"""Seconds. Bounds for the time between two tokens, as in vLLM."""
STEP_TOKENS = tuple(float(2**power) for power in (0, *range(3, 15)))
"""Bounds for the number of tokens of a step, as in vLLM."""


class Histogram:
    """Counts of values between bounds. Adding one takes a fraction of a microsecond. For one thread."""

    def __init__(self, bounds: Sequence[float]) -> None:
        """Create an empty histogram with ascending bounds. A bound belongs to the values below it."""
        self.bounds = tuple(bounds)
        """Upper bounds of the counts but the last."""
        self.counts = [0] * (len(self.bounds) + 1)
        """Number of values up to each bound and above the one before, and of those above all bounds."""
        self.sum = 0.0
        """Sum of all values."""

    def add(self, value: float, times: int = 1) -> None:
        """Add a value once or several times."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times

    def __add__(self, other: "Histogram") -> "Histogram":
        """Return a histogram of the values of both, whose bounds are equal."""
        both = Histogram(self.bounds)
        both.counts, both.sum = list(map(add, self.counts, other.counts)), self.sum + other.sum
        return both
