"""Log-probabilities under the model's unchanged distribution."""

import math

import numpy as np

from engine.sampling.candidates import Logits
from engine.sampling.truncation.heads import LOWEST, floors_of_best

LEAST = -9999.0
"""OpenAI's value for a token of almost no probability. JSON has no infinity."""


class LogProbs:
    """The log-probabilities of one row."""

    def __init__(self, logits: Logits) -> None:
        """Normalise the logits of a row. They must not change afterwards."""
        self._logits = logits
        best = logits.max()
        with np.errstate(invalid="ignore"):  # NaN logits give NaN log-probabilities
            weights = np.exp(logits - best)
        self._normalizer = float(best) + math.log(weights.sum(dtype=np.float64))

    def of(self, token: int) -> float:
        """Return the natural logarithm of the probability of a token."""
        return max(LEAST, float(self._logits[token]) - self._normalizer)

    def top(self, count: int) -> list[tuple[int, float]]:
        """Return the most probable tokens and their log-probabilities in descending order; the lowest ids of equal
        ones."""
        if not count:
            return []
        floor = max(floors_of_best(self._logits[np.newaxis], count)[0], LOWEST)
        ids = np.flatnonzero(self._logits >= floor)  # none if all logits are NaN
        ids = ids[np.argsort(-self._logits[ids], kind="stable")][:count]
        return [(token, self.of(token)) for token in ids.tolist()]
