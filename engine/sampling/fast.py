"""How one token is chosen from a row of logits: with as few candidates as llama.cpp's samplers need."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Protocol

import llama_cpp
import numpy as np

from engine.request import Sampling
from engine.sampling.candidates import Ids, Logits
from engine.sampling.chain import SamplerChain
from engine.sampling.cuts import above_min_p, likeliest, nucleus
from engine.sampling.resources import SamplerResources

if TYPE_CHECKING:
    from llama_cpp.llama_cpp import llama_sampler_p

_CUTS = ("top_k", "top_p", "min_p", "temperature")
"""Samplers that need no more than the candidates above a cut, in the order in which they do."""
_BLOCK = 512
"""Tokens. Near the root of a large vocabulary, so that both stages of a plain draw are short."""
_FEW = 8 * _BLOCK
"""Tokens. llama.cpp draws from so few as fast."""


class Choice(Protocol):
    """Chooses tokens for one sequence. Frees its samplers once, in `close`, which is repeatable."""

    def choose(self, logits: Logits, best: int) -> int:
        """A token, of which the likeliest is `best`. Raises `DrawError`."""

    def accept(self, token: int) -> None:
        """Take a token drawn into account from now on."""

    def close(self) -> None:
        """Free the samplers. Repeatable."""


class Likeliest:
    """Nothing is left to chance."""

    def choose(self, logits: Logits, best: int) -> int:  # noqa: ARG002 (the protocol's)
        """The likeliest."""
        return best

    def accept(self, token: int) -> None:
        """The choice does not depend on the text."""

    def close(self) -> None:
        """There are no samplers."""


class FromFew:
    """llama.cpp's chain of top_k, top_p, min_p and temperature, on the candidates that its cuts would leave."""

    def __init__(self, sampling: Sampling, active: Iterable[str], seed: int, resources: SamplerResources) -> None:
        """`active` are of `_CUTS`, in their order; the others count as off."""
        self._candidates = resources.candidates
        self._top_k = sampling.top_k if "top_k" in active else 0
        self._top_p = sampling.top_p if "top_p" in active else 1.0
        self._min_p = sampling.min_p if "min_p" in active else 0.0
        self._temperature = np.float32(sampling.temperature if "temperature" in active else 1.0)
        self._chain = SamplerChain(self._samplers(seed))

    def choose(self, logits: Logits, best: int) -> int:
        """Draw by chance."""
        if self._top_k > 0:
            ids = likeliest(logits, self._top_k)
            return self._sample(ids, logits[ids] - logits[best])
        if self._top_p < 1:
            logits = logits - logits[best]
            ids = nucleus(logits, self._top_p)
            return self._sample(ids, logits[ids])
        if self._min_p > 0:
            ids = above_min_p(logits, self._min_p, float(logits[best]))
            return self._sample(ids, logits[ids] - logits[best])
        return self._plain(logits - logits[best])

    def accept(self, token: int) -> None:
        """The choice does not depend on the text."""

    def close(self) -> None:
        """Free the samplers. Repeatable."""
        self._chain.close()

    def _plain(self, logits: Logits) -> int:
        """Draw from the model's own distribution, by logits relative to the best.

        A block of the vocabulary is drawn by its mass, then a token by its share of that mass: together the same
        probability as in one draw from all, for a tenth of the work.
        """
        ids = self._candidates.all_ids
        with np.errstate(over="ignore", divide="ignore"):
            logits = logits / self._temperature
            if len(ids) > _FEW:
                starts = ids[::_BLOCK]
                masses = np.log(np.add.reduceat(np.exp(logits), starts))
                start = self._sample(starts, masses)
                ids = ids[start : start + _BLOCK]
        return self._sample(ids, logits[ids])

    def _sample(self, ids: Ids, logits: Logits) -> int:
        return self._candidates.sample(self._chain, ids, logits)

    def _samplers(self, seed: int) -> Iterator["llama_sampler_p"]:
        """What the cut and the temperature of a plain draw leave to do."""
        if self._top_k > 0:
            yield llama_cpp.llama_sampler_init_top_k(self._top_k)
            yield llama_cpp.llama_sampler_init_top_p(self._top_p, 1)
        if self._top_k > 0 or self._top_p < 1 or self._min_p > 0:
            yield llama_cpp.llama_sampler_init_min_p(self._min_p, 1)
            yield llama_cpp.llama_sampler_init_temp(self._temperature)
        yield llama_cpp.llama_sampler_init_dist(seed)


def few_are_enough(sampling: Sampling, active: Iterable[str]) -> bool:
    """Whether `FromFew` is the same as the samplers in this order."""
    if sampling.dynatemp_range > 0 and "temperature" in active:
        return False
    order = [_CUTS.index(name) if name in _CUTS else -1 for name in active]
    return -1 not in order and order == sorted(set(order))
