"""How many prompt tokens one pass may carry, so that it takes no longer than a target."""

SMALLEST = 64
"""Tokens. Below this a pass costs its walk over the weights, not its tokens, so a smaller chunk saves no time."""
UNHURRIED = 256
"""Tokens of a pass that keeps no neighbour waiting. More gain a few percent of speed, and make an abort wait longer:
llama.cpp hears of it between two products of matrices."""
LARGEST = 2048
"""Tokens. The most that one call to llama.cpp takes."""
_WEIGHT = 0.3


class PromptBudget:
    """Measures prompt passes and sizes the next one for the target time."""

    def __init__(self, target_seconds: float) -> None:
        self._target = target_seconds
        self._rate: float | None = None

    def observe(self, tokens: int, seconds: float) -> None:
        """Learn from a prompt pass. Small ones are left out: they tell of the weights, not of the tokens."""
        if tokens < SMALLEST // 2 or seconds <= 0:
            return
        rate = tokens / seconds
        self._rate = rate if self._rate is None else self._rate + _WEIGHT * (rate - self._rate)

    def tokens(self, *, hurried: bool) -> int:
        """Tokens for the next prompt pass; `hurried` while neighbours wait for it."""
        fitting = SMALLEST if self._rate is None else int(self._rate * self._target)
        return min(LARGEST, max(fitting, SMALLEST if hurried else UNHURRIED))
