"""Selection and order of the samplers of a request."""

from collections.abc import Callable
from typing import get_args

import numpy as np

from engine.request import SAMPLER_ORDER, SamplerName, Sampling
from engine.sampling import dry, penalties

INFILL = "infill"
MIROSTAT = "mirostat"
_WITH_MIROSTAT = ("penalties", "dry", "temperature", MIROSTAT)

_CHANGES: dict[str, Callable[[Sampling], bool]] = {
    "penalties": penalties.wanted,
    "dry": dry.wanted,
    "top_n_sigma": lambda sampling: sampling.top_n_sigma > 0,
    "top_k": lambda sampling: sampling.top_k > 0,
    "typ_p": lambda sampling: sampling.typical_p < 1,
    "top_p": lambda sampling: sampling.top_p < 1,
    "min_p": lambda sampling: sampling.min_p > 0,
    "xtc": lambda sampling: sampling.xtc_probability > 0 and sampling.xtc_threshold <= 0.5,  # noqa: PLR2004 (llama.cpp's bound)
    "temperature": lambda sampling: sampling.temperature != 1 or sampling.dynatemp_range > 0,
    INFILL: lambda _: True,
    MIROSTAT: lambda _: True,
}


def active_samplers(sampling: Sampling) -> tuple[str, ...]:
    """Return the names of the samplers that have an effect, in the order in which they run.

    Mirostat has an order of its own.

    Raises:
        ValueError: llama.cpp has no sampler of that name.
    """
    names = SAMPLER_ORDER if sampling.samplers is None else sampling.samplers
    for name in names:
        if name not in get_args(SamplerName):
            raise ValueError(f"there is no sampler {name!r}")
    if sampling.mirostat:
        names = _WITH_MIROSTAT
    return tuple(name for name in names if _CHANGES[name](sampling))


def is_greedy(sampling: Sampling, active: tuple[str, ...]) -> bool:
    """Return whether the temperature is 0 and no sampler in `active` can change which token is the best."""
    if np.float32(sampling.temperature) > 0 or "temperature" not in active:  # llama.cpp compares in single precision
        return False
    if MIROSTAT in active:
        return True
    return sampling.dynatemp_range <= 0 and not {"typ_p", "xtc", INFILL, *penalties.NAMES} & set(active)
