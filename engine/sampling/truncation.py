"""Truncation of a distribution without sorting the vocabulary.

llama.cpp's samplers copy, weigh and sort every candidate: 1 to 10 ms a draw with 152k of them. These functions leave
out only candidates that its samplers would drop.
"""

import math

import numpy as np
from numpy.typing import NDArray

from engine.sampling.candidates import Ids, Logits

_SLACK = 1e-3  # in logits; covers the rounding of llama.cpp's min_p, which runs afterwards
_FIRST_DEPTH = 4.0
_UNDERFLOW = 104.0  # in logits below the best; exp gives 0 there in single precision
_GROUP = 64
_ID_BITS = np.uint64(32)
_ID_MASK = np.uint64(2**32 - 1)


def top_k(logits: Logits, count: int) -> Ids:
    """Return the tokens with the `count` highest logits, unordered; fewer if the others are impossible.

    The highest logits of `count` groups bound the result from below, so that few candidates are compared exactly.
    """
    group = max(1, min(_GROUP, len(logits) // count))
    maxima = logits[: len(logits) // group * group].reshape(group, -1).max(axis=0)
    floor = np.partition(maxima, -count)[-count] if count < len(maxima) else maxima.min()
    ids = possible(logits) if floor == -math.inf else _at_least(logits, float(floor))
    if len(ids) > count:
        ids = ids[np.argpartition(-logits[ids], count - 1)[:count]]
    return ids


def possible(logits: Logits) -> Ids:
    """Return the tokens with a logit above minus infinity."""
    return _ids(logits > -math.inf)


def nonzero(logits: Logits) -> Ids:
    """Return the tokens with a probability above 0 in single precision, relative to the best one."""
    return _at_least(logits, float(logits.max()) - _UNDERFLOW)


def above_min_p(logits: Logits, min_p: float, best: float) -> Ids:
    """Return the tokens with at least `min_p` times the probability of the best one, within rounding.

    `best` is the logit of the best one.
    """
    return _at_least(logits, best + math.log(min_p) - _SLACK)


def nucleus(logits: Logits, top_p: float) -> Ids:
    """Return the fewest tokens that have the mass `top_p` together, in descending order; at least one.

    The logits are relative to the best one, so all are at most 0. Only the head of the distribution is sorted; it grows
    until it has the mass.
    """
    weights = np.exp(logits)
    wanted = top_p * weights.sum(dtype=np.float64)
    depth = _FIRST_DEPTH
    head = _at_least(logits, -depth)
    while weights[head].sum(dtype=np.float64) < wanted and depth < _UNDERFLOW:
        depth *= 2
        head = _at_least(logits, -depth)
    descending = _descending(head, logits[head])
    mass = np.cumsum(weights[descending], dtype=np.float64)
    return descending[: int(np.searchsorted(mass, wanted)) + 1]


def _descending(ids: Ids, logits: Logits) -> Ids:
    """Return ids by their logits, of which none is above 0: the highest first, the lowest id first of equal ones.

    Depths are not negative, so that their bits have the same order, and a depth with its id is one number. numpy sorts
    numbers six times as fast as it finds their order.
    """
    depths = np.abs(logits).view(np.uint32).astype(np.uint64)
    return (np.sort(depths << _ID_BITS | ids.astype(np.uint64)) & _ID_MASK).astype(np.int32)


def _at_least(logits: Logits, floor: float) -> Ids:
    return _ids(logits >= np.float32(floor))


def _ids(kept: NDArray[np.bool_]) -> Ids:
    return np.flatnonzero(kept).astype(np.int32)
