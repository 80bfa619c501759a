"""How one token is chosen from a row of logits by any of llama.cpp's samplers, on all candidates."""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import llama_cpp

from engine.request import Sampling
from engine.sampling import penalties
from engine.sampling.candidates import Logits
from engine.sampling.chain import SamplerChain
from engine.sampling.cuts import possible, weighty
from engine.sampling.order import MIROSTAT
from engine.sampling.resources import SamplerResources

if TYPE_CHECKING:
    from llama_cpp.llama_cpp import llama_sampler_p

_MIROSTAT_TOKENS = 100
"""From how many of the likeliest Mirostat 1 estimates the distribution's shape, in llama.cpp."""


class FromAll:
    """llama.cpp's samplers in any order. See `engine.sampling.fast.Choice`."""

    def __init__(
        self, sampling: Sampling, active: Iterable[str], seed: int, prompt: list[int], resources: SamplerResources
    ) -> None:
        """`active` are the samplers' names, in their order."""
        self._candidates = resources.candidates
        self._without_weightless = "typ_p" in active
        self._chain = SamplerChain(_samplers(sampling, active, seed, prompt, resources))

    def choose(self, logits: Logits, best: int) -> int:  # noqa: ARG002 (the protocol's)
        """Draw by chance. Leaves out what cannot be drawn, which some of llama.cpp's samplers would count.

        Its entropy for typ_p is not a number where a probability is 0.
        """
        ids = weighty(logits) if self._without_weightless else possible(logits)
        return self._candidates.sample(self._chain, ids, logits[ids])

    def accept(self, token: int) -> None:
        """Tell the penalties."""
        self._chain.accept(token)

    def close(self) -> None:
        """Free the samplers. Repeatable."""
        self._chain.close()


def _samplers(
    sampling: Sampling, active: Iterable[str], seed: int, prompt: list[int], resources: SamplerResources
) -> Iterator["llama_sampler_p"]:
    """The samplers of those names, and the draw."""
    for name in active:
        if name in penalties.NAMES:
            yield from penalties.penalties(name, sampling, prompt, resources)
        else:
            yield _MAKERS[name](sampling, seed, len(resources.candidates.all_ids))
    if MIROSTAT not in active:  # which draws
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
"""One sampler each, of a request, a seed and the size of the vocabulary."""
