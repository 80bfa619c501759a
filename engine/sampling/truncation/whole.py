"""Draws from the whole distribution: with a temperature at most, as OpenAI's API does by default.

llama.cpp's draw from 152k candidates takes some 2 ms. These ways give each token the same probability for a fraction of
the work.
"""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from engine.sampling.candidates import Logits
from engine.sampling.truncation.heads import LOWEST, Heads, ManyCandidatesError
from engine.sampling.truncation.shares import OTHERS, Shares
from engine.sampling.truncation.uniforms import Uniforms

FEW: Final = 4096
"""Tokens. From up to this many, the draw is llama.cpp's."""
_BLOCK = 512
"""Tokens. About the square root of a large vocabulary, which makes both stages of a draw by blocks short."""
_OTHERS: Final = 1 / 2
"""Mass of all tokens below the floor at most, relative to that of the best one. With less, more tokens are likely."""
_LIKELY = 1 << 14
"""Tokens. A draw from so many likely ones takes less time than a draw of a block from a large vocabulary. Each row
counts for itself: its draw must not depend on others.
"""


def draw_from_all(logits: Logits, tops: Logits, temperatures: Logits, uniforms: Sequence[Uniforms]) -> list[int]:
    """Return the place of a token of each row.

    Args:
        logits: (rows, tokens).
        tops: the best logit of each row.
        temperatures: of each row.
        uniforms: random numbers of each row.

    Raises:
        ManyCandidatesError: the likely tokens of a row are many, and there are several rows.
    """
    width = logits.shape[1]
    if width <= FEW:
        heads = Heads.where(logits >= LOWEST, logits, tops)
        return Shares(heads, temperatures).draw([numbers.next() for numbers in uniforms])
    with np.errstate(over="ignore"):
        floors = np.maximum(tops - np.float32(_depth(width)) * temperatures, LOWEST)
    likely = logits >= floors[:, np.newaxis]
    if np.count_nonzero(likely) <= _LIKELY or all(np.count_nonzero(row) <= _LIKELY for row in likely):
        return _draw_likely(Heads.where(likely, logits, tops), logits, tops, temperatures, uniforms)
    if len(logits) > 1:
        raise ManyCandidatesError
    return [_draw_block(logits[0], tops[0], temperatures[0], uniforms[0])]


def _draw_likely(
    likely: Heads, logits: Logits, tops: Logits, temperatures: Logits, uniforms: Sequence[Uniforms]
) -> list[int]:
    """Draw from few likely tokens and, by rejection sampling (von Neumann, 1951), from those below their floor.

    At the floor a token has the mass of `_OTHERS` divided by the number of tokens. So all others are bounded by a
    candidate that stands for every token with that mass. Where it is chosen, one token is, and is taken by its share
    of its bound. If not, the draw begins again.
    """
    shares = Shares(likely, temperatures, others=_OTHERS)
    drawn = shares.draw([numbers.next() for numbers in uniforms])
    for row in range(len(drawn)):
        while drawn[row] == OTHERS:
            drawn[row] = _draw_unlikely(logits[row], tops[row], temperatures[row], uniforms[row])
            if drawn[row] == OTHERS:
                drawn[row] = shares.draw_one(row, uniforms[row].next())
    return drawn


def _draw_unlikely(logits: Logits, top: np.float32, temperature: np.float32, uniforms: Uniforms) -> int:
    """Return a token below the floor by its share of its bound; `OTHERS` if that is not drawn."""
    place = int(uniforms.next() * len(logits))
    share = (float(logits[place]) - float(top)) / float(temperature) + _depth(len(logits))
    return place if share < 0 and uniforms.next() < math.exp(share) else OTHERS


def _depth(tokens: int) -> float:
    """Return how far below the best one the floor is, at a temperature of 1."""
    return math.log(tokens / _OTHERS)


def _draw_block(logits: Logits, top: np.float32, temperature: np.float32, uniforms: Uniforms) -> int:
    """Draw a block of the vocabulary by its mass, and with the rest of the same number a token of it."""
    with np.errstate(over="ignore", divide="ignore"):
        weights = np.exp((logits - top) / temperature)
    starts = np.arange(0, len(logits), _BLOCK)
    masses = np.cumsum(np.add.reduceat(weights, starts), dtype=np.float64)
    wanted = float(masses[-1]) * uniforms.next()
    block = int(masses.searchsorted(wanted))
    before = float(masses[block - 1]) if block else 0.0
    start = block * _BLOCK
    inside = np.cumsum(weights[start : start + _BLOCK], dtype=np.float64)
    rest = min(wanted - before, float(inside[-1]))  # a rounded mass may be more, and the last token impossible
    return start + int(inside.searchsorted(rest))
