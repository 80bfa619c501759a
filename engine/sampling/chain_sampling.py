"""Sampling by llama.cpp's samplers in any order, on all candidates."""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import llama_cpp
import numpy as np

from engine.request import Sampling
from engine.sampling import infill, penalties
from engine.sampling.candidates import Ids, Logits
from engine.sampling.chain import SamplerChain
from engine.sampling.resources import SamplerResources
from engine.sampling.sampler_order import INFILL, MIROSTAT
from engine.sampling.truncation.heads import UNDERFLOW

if TYPE_CHECKING:
    from llama_cpp.llama_cpp import llama_sampler_p

_MIROSTAT_TOKENS = 100
"""Most probable tokens from which Mirostat 1 estimates the shape of the distribution, as in llama.cpp."""


class ChainSampling:
    """Draws with a chain of all samplers that have an effect. Owns them and frees them once."""

    def __init__(
        self, sampling: Sampling, active: Iterable[str], seed: int, prompt: list[int], resources: SamplerResources
    ) -> None:
        """Make the chain. `active` names the samplers in their order."""
        self._candidates = resources.candidates
        self._needs_nonzero = "typ_p" in active
        self._chain = SamplerChain(_samplers(sampling, active, seed, prompt, resources))

    def sample(self, logits: Logits) -> int:
        """Return a token by the logits of all of them.

        Raises:
            DrawError: no token can be drawn.
        """
        # Some samplers of llama.cpp count impossible tokens, and its typ_p makes a NaN of a probability of 0.
        ids = _nonzero(logits) if self._needs_nonzero else _possible(logits)
        return self._candidates.sample(self._chain, ids, logits[ids])

    def accept(self, token: int) -> None:
        """Add a drawn token to the text that penalties look at."""
        self._chain.accept(token)

    def close(self) -> None:
        """Free the samplers. Repeatable."""
        self._chain.close()


def _possible(logits: Logits) -> Ids:
    return np.flatnonzero(logits > -math.inf).astype(np.int32)


def _nonzero(logits: Logits) -> Ids:
    """Return the tokens with a probability above 0 in single precision, relative to the best one."""
    return np.flatnonzero(logits >= logits.max() - np.float32(UNDERFLOW)).astype(np.int32)


def _samplers(
    sampling: Sampling, active: Iterable[str], seed: int, prompt: list[int], resources: SamplerResources
) -> Iterator["llama_sampler_p"]:
    """Yield the samplers of these names, then the one that draws."""
    for name in active:
        if name in penalties.NAMES:
            yield from penalties.penalty_samplers(name, sampling, prompt, resources)
        elif name == INFILL:
            yield from infill.infill_samplers(resources.vocab)
        else:
            yield _MAKERS[name](sampling, seed, resources.candidates.vocabulary)
    if MIROSTAT not in active:  # Mirostat draws
        yield llama_cpp.llama_sampler_init_dist(seed)


_MAKERS: dict[str, Callable[[Sampling, int, int], "llama_sampler_p"]] = {
    "top_n_sigma": lambda sampling, *_: llama_cpp.llama_sampler_init_top_n_sigma(sampling.top_n_sigma),
    "top_k": lambda sampling, *_: llama_cpp.llama_sampler_init_top_k(sampling.top_k),
    "typ_p": lambda sampling, *_: llama_cpp.llama_sampler_init_typical(sampling.typical_p, 1),
    "top_p": lambda sampling, *_: llama_cpp.llama_sampler_init_top_p(sampling.top_p, 1),
    "min_p": lambda sampling, *_: llama_cpp.llama_sampler_init_min_p(sampling.min_p, 1),
    "xtc": lambda sampling, seed, _: llama_cpp.llama_sampler_init_xtc(
        sampling.xtc_probability, sampling.xtc_threshold, 1, seed
    ),
    "temperature": lambda sampling, *_: llama_cpp.llama_sampler_init_temp_ext(
        sampling.temperature, 0.0 if sampling.mirostat else sampling.dynatemp_range, sampling.dynatemp_exponent
    ),
    MIROSTAT: lambda sampling, seed, vocabulary: (
        llama_cpp.llama_sampler_init_mirostat(
            vocabulary, seed, sampling.mirostat_tau, sampling.mirostat_eta, _MIROSTAT_TOKENS
        )
        if sampling.mirostat == 1
        else llama_cpp.llama_sampler_init_mirostat_v2(seed, sampling.mirostat_tau, sampling.mirostat_eta)
    ),
}
"""Makers of one sampler each, from a request, a seed and the size of the vocabulary."""
