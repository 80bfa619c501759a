"""Which tokens can be drawn at all, found without sorting the vocabulary.

llama.cpp's samplers copy, weigh and sort every candidate they get: 1 to 10 ms a draw with 152k of them. These functions
leave out only what its samplers would drop. They take logits relative to the best one, so none is above 0.
"""

import math

import numpy as np

from engine.llama.candidates import Ids, Logits

_SLACK = 1e-3  # in logits; covers the rounding of llama.cpp's own cut, which follows
_FIRST_DEPTH = 4.0
_NO_WEIGHT = 104.0  # in logits below the best; exp gives 0 there in single precision


def above_min_p(logits: Logits, min_p: float) -> Ids:
    """The tokens that reach the share `min_p` of the likeliest one's probability, and those within rounding of it."""
    return _at_least(logits, math.log(min_p) - _SLACK)


def nucleus(logits: Logits, top_p: float) -> Ids:
    """The fewest tokens that have the mass `top_p` together, likeliest first; at least one.

    Only the head of the distribution is sorted: it grows until it has the mass.
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
    return np.flatnonzero(logits >= np.float32(floor)).astype(np.int32)
