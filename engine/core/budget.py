"""How many prompt tokens one pass may carry, so that it takes no longer than a target."""

SMALLEST = 64
"""Tokens. Where a model does not say otherwise, a smaller chunk saves no time."""
UNHURRIED = 256
"""Tokens of a pass that keeps no neighbour waiting. More gain a few percent of speed, and make an abort wait longer:
llama.cpp hears of it between two products of matrices."""
LARGEST = 2048
"""Tokens. The most that one call to llama.cpp takes."""
_TELLING = 32
_BAND = 512
"""Tokens. A token costs the more, the more there are before it, so speeds are learnt for each band of depths."""
_WEIGHT = 0.3


class PromptBudget:
    """Measures prompt passes and sizes the next one for the target time."""

    def __init__(self, target_seconds: float, smallest: int = SMALLEST) -> None:
        """`smallest` is the number of tokens below which a chunk saves no time."""
        self._target = target_seconds
        self._smallest = smallest
        self._rates: dict[int, float] = {}

    def observe(self, tokens: int, seconds: float, *, depth: int = 0) -> None:
        """Learn from a prompt pass; `depth` is the tokens there were before each of its own, on average.

        Small ones are left out: they tell of the weights, not of the tokens.
        """
        if tokens < min(self._smallest, _TELLING) or seconds <= 0:
            return
        rate, band = tokens / seconds, depth // _BAND
        known = self._rates.get(band, rate)
        self._rates[band] = known + _WEIGHT * (rate - known)

    def tokens(self, *, hurried: bool, depth: int = 0) -> int:
        """Tokens for the next prompt pass; `hurried` while neighbours wait for it."""
        rate = self._rate(depth // _BAND)
        fitting = self._smallest if rate is None else int(rate * self._target)
        return min(LARGEST, max(fitting, self._smallest if hurried else UNHURRIED))

    def _rate(self, band: int) -> float | None:
        """Tokens a second in a band, or in the one next to it of which something is known."""
        nearest = min(self._rates, key=lambda known: abs(known - band), default=None)
        return None if nearest is None else self._rates[nearest]
