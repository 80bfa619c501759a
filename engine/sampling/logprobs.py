"""Log-probabilities under the model's unchanged distribution."""

import math

import numpy as np

from engine.sampling.candidates import Ids, Logits
from engine.sampling.truncation import top_k

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
        best = top_k(self._logits, count) if count else ()
        if not len(best):  # all logits are NaN
            return []
        floor = self._logits[best].min()
        ids: Ids = np.flatnonzero(self._logits >= floor).astype(np.int32)
        ids = ids[np.argsort(-self._logits[ids], kind="stable")][:count]
        return [(token, self.of(token)) for token in ids.tolist()]
