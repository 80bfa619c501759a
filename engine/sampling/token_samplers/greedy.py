"""Greedy sampling: always the token with the highest logit."""

import numpy as np
from typing_extensions import override

from engine.request import Sampling
from engine.sampling import penalties
from engine.sampling.candidates import Logits
from engine.sampling.sampler_order import MIROSTAT
from engine.sampling.token_samplers.token_sampler import TokenSampler


class Greedy(TokenSampler):
    """Greedy sampling without a sampler of llama.cpp."""

    @override
    def sample(self, logits: Logits, best: int) -> int:
        return best

    @override
    def accept(self, token: int) -> None:
        pass

    @override
    def close(self) -> None:
        pass


def is_greedy(sampling: Sampling, active: tuple[str, ...]) -> bool:
    """Return whether the temperature is 0 and no sampler in `active` can change which token is the best."""
    if np.float32(sampling.temperature) > 0 or "temperature" not in active:  # llama.cpp compares in single precision
        return False
    if MIROSTAT in active:
        return True
    return sampling.dynatemp_range <= 0 and not {"typ_p", "xtc", *penalties.NAMES} & set(active)
