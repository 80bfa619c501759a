"""Log-probabilities under the model's own distribution."""

import math

import numpy as np

from engine.sampling.candidates import Ids, Logits
from engine.sampling.truncation import top_k

LEAST = -9999.0
"""What OpenAI says of a token that is next to impossible. JSON has no infinity."""


class LogProbs:
    """Of the tokens in one place."""

    def __init__(self, logits: Logits) -> None:
        """`logits` are the model's, one for each token of the vocabulary, and must stay as they are."""
        self._logits = logits
        best = logits.max()
        with np.errstate(invalid="ignore"):  # from logits that are none comes no probability
            weights = np.exp(logits - best)
        self._normalizer = float(best) + math.log(weights.sum(dtype=np.float64))

    def of(self, token: int) -> float:
        """The natural logarithm of a token's probability."""
        return max(LEAST, float(self._logits[token]) - self._normalizer)

    def top(self, count: int) -> list[tuple[int, float]]:
        """The likeliest tokens and their log-probabilities, likeliest first; of equal ones the lowest ids."""
        if count == 0:
            return []
        floor = self._logits[top_k(self._logits, count)].min()
        ids: Ids = np.flatnonzero(self._logits >= floor).astype(np.int32)
        ids = ids[np.argsort(-self._logits[ids], kind="stable")][:count]
        return [(token, self.of(token)) for token in ids.tolist()]
