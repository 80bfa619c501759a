"""One candidate of each row, by their shares."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from engine.sampling.candidates import Logits
from engine.sampling.truncation.heads import Heads

OTHERS: Final = -1
"""Stands for a token that is not among the candidates."""


class Shares:
    """The shares that the candidates of several rows have in a draw."""

    def __init__(self, heads: Heads, temperatures: Logits, *, others: float = 0.0) -> None:
        """Weigh candidates by the temperature of their row.

        Args:
            heads: the candidates.
            temperatures: of each row.
            others: weight of all other tokens of a row, relative to that of its best one.
        """
        with np.errstate(over="ignore"):
            self.weights = np.exp(heads.logits / temperatures[heads.rows])
        self._columns = heads.columns
        self._others = others
        self._sums, edges = heads.sums(self.weights), heads.edges()
        self._first, self._last = edges[:-1], edges[1:] - 1
        self._before = self._sums[self._first]
        self._masses = self._sums[edges[1:]] - self._before

    def draw(self, numbers: Sequence[float]) -> list[int]:
        """Return the place of a candidate of each row, or `OTHERS`, by llama.cpp's rule.

        It is the first one with whose weight the sum reaches the random number's share of the whole.

        Args:
            numbers: a random number for each row, from 0 up to 1.
        """
        wanted = (self._masses + self._others) * numbers
        at = self._sums[1:].searchsorted(self._before + wanted)
        chosen = self._columns[np.minimum(np.maximum(at, self._first), self._last)]
        if self._others:
            chosen[wanted > self._masses] = OTHERS
        places: list[int] = chosen.tolist()
        return places

    def draw_one(self, row: int, number: float) -> int:
        """Return the place of a candidate of one row, or `OTHERS`: see `draw`."""
        wanted = (self._masses[row] + self._others) * number
        if wanted > self._masses[row]:
            return OTHERS
        at = int(self._sums[1:].searchsorted(self._before[row] + wanted))
        return int(self._columns[min(max(at, int(self._first[row])), int(self._last[row]))])
