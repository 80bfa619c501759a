"""Sampling from the few candidates that top-k, top-p or min-p leave."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import llama_cpp
import numpy as np
from typing_extensions import override

from engine.request import Sampling
from engine.sampling.candidates import Ids, Logits
from engine.sampling.chain import SamplerChain
from engine.sampling.resources import SamplerResources
from engine.sampling.token_samplers.token_sampler import TokenSampler
from engine.sampling.truncation import above_min_p, nucleus, top_k

if TYPE_CHECKING:
    from llama_cpp.llama_cpp import llama_sampler_p

_TRUNCATING = ("top_k", "top_p", "min_p", "temperature")
"""Samplers that depend only on the candidates above a threshold, if they run in this order."""


class TruncatedSampling(TokenSampler):
    """llama.cpp's chain of top_k, top_p, min_p and temperature, on the candidates that truncation leaves."""

    def __init__(self, sampling: Sampling, active: Iterable[str], seed: int, resources: SamplerResources) -> None:
        """Make the chain. `active` names samplers of `_TRUNCATING` in that order, not only the last; others are off."""
        self._candidates = resources.candidates
        self._top_k = sampling.top_k if "top_k" in active else 0
        self._top_p = sampling.top_p if "top_p" in active else 1.0
        self._min_p = sampling.min_p if "min_p" in active else 0.0
        self._temperature = np.float32(sampling.temperature if "temperature" in active else 1.0)
        self._chain = SamplerChain(self._samplers(seed))

    @override
    def sample(self, logits: Logits, best: int) -> int:
        if self._top_k > 0:
            ids = top_k(logits, self._top_k)
            return self._sample(ids, logits[ids] - logits[best])
        if self._top_p < 1:
            logits -= logits[best]
            ids = nucleus(logits, self._top_p)
            return self._sample(ids, logits[ids])
        ids = above_min_p(logits, self._min_p, float(logits[best]))
        return self._sample(ids, logits[ids] - logits[best])

    @override
    def accept(self, token: int) -> None:
        pass

    @override
    def close(self) -> None:
        self._chain.close()

    def _sample(self, ids: Ids, logits: Logits) -> int:
        return self._candidates.sample(self._chain, ids, logits)

    def _samplers(self, seed: int) -> Iterator["llama_sampler_p"]:
        """Yield the samplers that `sample` does not replace."""
        if self._top_k > 0:
            yield llama_cpp.llama_sampler_init_top_k(self._top_k)
            yield llama_cpp.llama_sampler_init_top_p(self._top_p, 1)
        yield llama_cpp.llama_sampler_init_min_p(self._min_p, 1)
        yield llama_cpp.llama_sampler_init_temp(self._temperature)
        yield llama_cpp.llama_sampler_init_dist(seed)


def can_truncate(sampling: Sampling, active: Iterable[str]) -> bool:
    """Return whether `TruncatedSampling` draws like the samplers in this order."""
    if sampling.dynatemp_range > 0 and "temperature" in active:
        return False
    order = [_TRUNCATING.index(name) if name in _TRUNCATING else -1 for name in active]
    return -1 not in order and order == sorted(set(order))
