"""Draws of several rows, each by its own settings."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Final, TypeAlias

import numpy as np

from engine.request import Sampling
from engine.sampling.candidates import Logits
from engine.sampling.truncation.heads import MOST_ROWS, UNDERFLOW, Heads, ManyCandidatesError, floors_of_best
from engine.sampling.truncation.shares import Shares
from engine.sampling.truncation.uniforms import Uniforms
from engine.sampling.truncation.whole import draw_from_all

_SAMPLERS = ("top_k", "top_p", "min_p", "temperature")
"""Samplers that depend only on the candidates above a floor, if they run in this order."""
_FIRST_DEPTH: Final = 4.0

Find: TypeAlias = Callable[[Logits, Logits, Sequence["Truncation"]], Heads]
"""Returns the candidates that truncation leaves of rows, by their logits, the best logit of each, and its settings.

Raises `ManyCandidatesError`.
"""


@dataclass(frozen=True, slots=True)
class Truncation:
    """How the tokens of a sequence are drawn."""

    top_k: int
    """0 if it is off."""
    top_p: float
    """1 if it is off."""
    log_min_p: float
    """Minus infinity if it is off."""
    temperature: float
    """1 if it is off."""
    uniforms: Uniforms
    """Random numbers of the sequence."""

    @property
    def find(self) -> Find | None:
        """Finds the candidates of sequences with the same samplers; None if every token is one."""
        if self.top_k > 0:
            return _best
        if self.top_p < 1:
            return _nuclei
        return _above_min_p if self.log_min_p > -math.inf else None


def truncation_of(sampling: Sampling, active: Iterable[str], seed: int) -> Truncation | None:
    """Return how the samplers in this order draw; None if it takes more than truncation and a temperature."""
    names = tuple(active)
    if sampling.dynatemp_range > 0 and "temperature" in names:
        return None
    order = [_SAMPLERS.index(name) if name in _SAMPLERS else -1 for name in names]
    if -1 in order or order != sorted(set(order)):
        return None
    return Truncation(
        sampling.top_k if "top_k" in names else 0,
        sampling.top_p if "top_p" in names else 1.0,
        math.log(sampling.min_p) if "min_p" in names else -math.inf,
        sampling.temperature if "temperature" in names else 1.0,
        Uniforms(seed),
    )


def draw(logits: Logits, best: Sequence[int], truncations: Sequence[Truncation]) -> list[int]:
    """Return the place of a token of each row, as llama.cpp's samplers draw it with the same seed.

    Only a draw from a whole large vocabulary is not llama.cpp's, but has the same probabilities.

    Args:
        logits: (rows, tokens).
        best: the place of the best logit of each row, which is finite.
        truncations: how each row is drawn.
    """
    tops = logits[np.arange(len(best)), best]
    drawn: list[int] = []
    for find, run in groupby(truncations, key=attrgetter("find")):
        some = list(run)
        for at in range(0, len(some), MOST_ROWS):
            part = some[at : at + MOST_ROWS]
            rows = slice(len(drawn), len(drawn) + len(part))
            drawn += _draw(find, logits[rows], tops[rows], part)
    return drawn


def _draw(find: Find | None, logits: Logits, tops: Logits, truncations: Sequence[Truncation]) -> list[int]:
    temperatures = np.array([truncation.temperature for truncation in truncations], np.float32)
    uniforms = [truncation.uniforms for truncation in truncations]
    try:
        if find is None:
            return draw_from_all(logits, tops, temperatures, uniforms)
        shares = Shares(find(logits, tops, truncations), temperatures)
    except ManyCandidatesError:
        rows = (slice(at, at + 1) for at in range(len(truncations)))
        return [_draw(find, logits[row], tops[row], truncations[row])[0] for row in rows]
    return shares.draw([numbers.next() for numbers in uniforms])


def _best(logits: Logits, tops: Logits, truncations: Sequence[Truncation]) -> Heads:
    """Return what top_k, top_p and min_p leave, the likeliest first."""
    counts = np.array([truncation.top_k for truncation in truncations])
    heads = Heads.above(logits, tops, floors_of_best(logits, int(counts.max()))).sorted().first(counts)
    shares = np.array([truncation.top_p for truncation in truncations])
    if (shares < 1).any():
        heads = heads.nucleus(np.where(shares < 1, shares * heads.masses(), math.inf))
    return _kept_by_min_p(heads, truncations)


def _nuclei(logits: Logits, tops: Logits, truncations: Sequence[Truncation]) -> Heads:
    """Return what top_p and min_p leave, the likeliest first. Only the heads of the rows are sorted."""
    weights = np.subtract(logits, tops[:, np.newaxis])
    np.exp(weights, out=weights)
    masses = weights.sum(axis=1).astype(np.float64) * [truncation.top_p for truncation in truncations]
    depths = np.full_like(tops, _FIRST_DEPTH)
    heads = Heads.above(logits, tops, tops - depths)
    while (lacking := (heads.masses() < masses) & (depths < UNDERFLOW)).any():
        depths[lacking] *= 2
        heads = Heads.above(logits, tops, tops - depths)
    return _kept_by_min_p(heads.sorted().nucleus(masses), truncations)


def _above_min_p(logits: Logits, tops: Logits, truncations: Sequence[Truncation]) -> Heads:
    """Return what min_p leaves, in the order of their places."""
    return Heads.above(logits, tops, tops + _min_p_floors(truncations))


def _kept_by_min_p(heads: Heads, truncations: Sequence[Truncation]) -> Heads:
    return heads.keep(heads.logits >= _min_p_floors(truncations)[heads.rows])


def _min_p_floors(truncations: Sequence[Truncation]) -> Logits:
    """Return the lowest logit that min_p leaves of each row, relative to the best one."""
    return np.array([truncation.log_min_p for truncation in truncations], np.float32)
