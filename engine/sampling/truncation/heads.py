"""The candidates that truncation leaves of several rows, without sorting the vocabulary.

llama.cpp's samplers copy, weigh and sort every token of a row: 1 to 10 ms a draw with 152k of them. Here a floor leaves
a few of each row first. All rows share each call of numpy: where several threads draw, a call may wait for the
interpreter's lock, which takes longer than its work on one row.
"""

from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from engine.sampling.candidates import Logits

LOWEST: Final = np.finfo(np.float32).min
"""The lowest floor, which leaves out impossible tokens alone."""
MOST_ROWS: Final = 16
"""Rows at once. It bounds the memory of a draw."""
UNDERFLOW: Final = 104.0
"""In logits below the best; exp gives 0 there in single precision."""
_MANY: Final = 1 << 16
"""Candidates. More of them leave a core's caches, and take longer than the calls of numpy that rows share."""
_GROUP = 64
_TIES = 1 - np.finfo(np.float32).eps
"""Factor that leaves rounding out of ties: sums are rounded by those of the rows before."""
_TINY = np.finfo(np.float64).tiny
_COLUMN_BITS, _DEPTH_BITS = np.uint64(27), np.uint64(31)
_COLUMNS, _DEPTHS = np.uint64(2**27 - 1), np.uint64(2**31 - 1)


class ManyCandidatesError(Exception):
    """Rows have so many candidates together that each should be drawn on its own."""


@dataclass(frozen=True, slots=True)
class Heads:
    """Candidates of some rows, row after row."""

    count: int
    """Number of rows. Each has a candidate."""
    rows: NDArray[np.intp]
    """The row of each candidate, ascending."""
    columns: NDArray[np.intp]
    """The place of each candidate in its row."""
    logits: Logits
    """The logit of each candidate, relative to the best one of its row."""

    @classmethod
    def above(cls, logits: Logits, tops: Logits, floors: Logits) -> Self:
        """Return the candidates of rows whose logits are at least the floor of the row, in the order of their places.

        Args:
            logits: (rows, tokens).
            tops: the best logit of each row.
            floors: at most `tops`. Impossible tokens are left out in any case.

        Raises:
            ManyCandidatesError: they are too many for several rows.
        """
        kept = logits >= np.maximum(floors, LOWEST)[:, np.newaxis]
        if len(logits) > 1 and np.count_nonzero(kept) > _MANY:
            raise ManyCandidatesError
        return cls.where(kept, logits, tops)

    @classmethod
    def where(cls, kept: NDArray[np.bool_], logits: Logits, tops: Logits) -> Self:
        """Return candidates by a flag for each: (rows, tokens), as `logits`."""
        count, width = logits.shape
        (flat,) = kept.ravel().nonzero()
        rows = flat // width
        columns = flat - rows * width
        return cls(count, rows, columns, logits.ravel().take(flat) - tops[rows])

    def sorted(self) -> Self:
        """Return them with the likeliest of each row first, of equal ones the first of the row.

        Depths below the best one are not negative, so that their bits have the same order, and a row, a depth and a
        place are one number. numpy sorts numbers six times as fast as it finds their order.
        """
        depths = np.abs(self.logits).view(np.uint32).astype(np.uint64)
        keys = (self.rows.astype(np.uint64) << _DEPTH_BITS | depths) << _COLUMN_BITS | self.columns.astype(np.uint64)
        keys.sort()
        logits = -(keys >> _COLUMN_BITS & _DEPTHS).astype(np.uint32).view(np.float32)
        return type(self)(self.count, self.rows, (keys & _COLUMNS).astype(np.intp), logits)

    def first(self, counts: NDArray[np.intp]) -> Self:
        """Return at most so many of each row, in their order."""
        ranks = np.arange(len(self.rows)) - self.edges()[self.rows]
        return self.keep(ranks < counts[self.rows])

    def nucleus(self, masses: NDArray[np.float64]) -> Self:
        """Return the first ones of each row that have its mass together, and all where they have less.

        Args:
            masses: relative to that of the best candidate, which is always kept.
        """
        sums = self.sums(np.exp(self.logits))
        before = sums[:-1] - sums[self.edges()][self.rows]
        return self.keep(before < np.maximum(masses * _TIES, _TINY)[self.rows])

    def masses(self) -> NDArray[np.float64]:
        """Return the mass of all candidates of each row, relative to that of its best one."""
        masses: NDArray[np.float64] = np.add.reduceat(np.exp(self.logits), self.edges()[:-1], dtype=np.float64)
        return masses

    def sums(self, weights: Logits) -> NDArray[np.float64]:
        """Return the sum of the weights before each candidate, and the total."""
        sums = np.zeros(len(weights) + 1)
        weights.cumsum(dtype=np.float64, out=sums[1:])
        return sums

    def keep(self, kept: NDArray[np.bool_]) -> Self:
        """Return candidates by a flag for each."""
        return type(self)(self.count, self.rows[kept], self.columns[kept], self.logits[kept])

    def edges(self) -> NDArray[np.intp]:
        """Return where the candidates of each row begin, and the end of the last one."""
        return self.rows.searchsorted(np.arange(self.count + 1))


def floors_of_best(logits: Logits, count: int) -> Logits:
    """Return floors above which so many candidates of each row are, if it has so many, and few more.

    The highest logits of so many of its groups bound the best ones of a row from below.
    """
    rows, width = logits.shape
    group = max(1, min(_GROUP, width // (2 * count)))
    maxima: Logits = logits[:, : width // group * group].reshape(rows, group, -1).max(axis=1)
    others = maxima.shape[1] - count
    maxima.partition(max(others, 0))
    return maxima[:, max(others, 0)]
