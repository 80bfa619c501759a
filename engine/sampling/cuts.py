"""Which tokens can be drawn at all, found without sorting the vocabulary.

llama.cpp's samplers copy, weigh and sort every candidate they get: 1 to 10 ms a draw with 152k of them. These functions
leave out only what its samplers would drop.
"""

import math

import numpy as np
from numpy.typing import NDArray

from engine.sampling.candidates import Ids, Logits

_SLACK = 1e-3  # in logits; covers the rounding of llama.cpp's own cut, which follows
_FIRST_DEPTH = 4.0
_NO_WEIGHT = 104.0  # in logits below the best; exp gives 0 there in single precision
_GROUP = 64


def likeliest(logits: Logits, count: int) -> Ids:
    """The tokens with the `count` highest logits, in no order; fewer where the others are impossible.

    The highest logits of `count` groups bound the wanted ones from below, so that few need to be compared exactly.
    """
    group = max(1, min(_GROUP, len(logits) // count))
    maxima = logits[: len(logits) // group * group].reshape(group, -1).max(axis=0)
    floor = np.partition(maxima, -count)[-count] if count < len(maxima) else maxima.min()
    ids = possible(logits) if floor == -math.inf else _at_least(logits, floor)
    if len(ids) > count:
        ids = ids[np.argpartition(-logits[ids], count - 1)[:count]]
    return ids


def possible(logits: Logits) -> Ids:
    """The tokens that have a probability at all."""
    return _ids(logits > -math.inf)


def weighty(logits: Logits) -> Ids:
    """The tokens whose share of the likeliest one's probability is above 0 in single precision."""
    return _at_least(logits, float(logits.max()) - _NO_WEIGHT)


def above_min_p(logits: Logits, min_p: float, best: float) -> Ids:
    """The tokens that reach the share `min_p` of the likeliest one's probability, and those within rounding of it.

    `best` is the likeliest one's logit.
    """
    return _at_least(logits, best + math.log(min_p) - _SLACK)


def nucleus(logits: Logits, top_p: float) -> Ids:
    """The fewest tokens that have the mass `top_p` together, likeliest first; at least one.

    Takes logits relative to the best one, so none is above 0. Only the head of the distribution is sorted: it grows
    until it has the mass.
    """
    weights = np.exp(logits)
    wanted = top_p * weights.sum(dtype=np.float64)
    depth = _FIRST_DEPTH
    head = _at_least(logits, -depth)
    while weights[head].sum(dtype=np.float64) < wanted and depth < _NO_WEIGHT:
        depth *= 2
        head = _at_least(logits, -depth)
    likeliest_first = head[np.argsort(-logits[head], kind="stable")]
    mass = np.cumsum(weights[likeliest_first], dtype=np.float64)
    return likeliest_first[: int(np.searchsorted(mass, wanted)) + 1]


def _at_least(logits: Logits, floor: float) -> Ids:
    return _ids(logits >= np.float32(floor))


def _ids(kept: NDArray[np.bool_]) -> Ids:
    return np.flatnonzero(kept).astype(np.int32)
