"""Sampling from the whole distribution: with a temperature at most, as OpenAI's API does by default.

llama.cpp's draw from 152k candidates takes some 2 ms. These ways give each token the same probability for a fraction of
the work.
"""

import math
import random
from collections.abc import Iterable

import llama_cpp
import numpy as np
from typing_extensions import override

from engine.request import Sampling
from engine.sampling.candidates import Ids, Logits
from engine.sampling.chain import SamplerChain
from engine.sampling.resources import SamplerResources
from engine.sampling.token_samplers.token_sampler import TokenSampler

_BLOCK = 512
"""Tokens. About the square root of a large vocabulary, which makes both stages of a draw by blocks short."""
_FEW = 8 * _BLOCK
"""Tokens. From up to this many, one draw by llama.cpp is as fast."""
_LIKELY = 1 << 14
"""Tokens. A draw from so many likely ones takes less time than a draw of a block from a large vocabulary."""
_OTHERS = -1
"""Stands for all tokens, with the mass of the best one."""


class WholeSampling(TokenSampler):
    """Draws from all tokens by their probabilities, with llama.cpp's random choice among few candidates."""

    def __init__(self, sampling: Sampling, active: Iterable[str], seed: int, resources: SamplerResources) -> None:
        """Make the sampler that chooses. `active` is empty or names only the temperature."""
        self._candidates = resources.candidates
        self._temperature = np.float32(sampling.temperature if "temperature" in active else 1.0)
        vocabulary = len(resources.candidates.all_ids)
        self._depth = math.log(vocabulary)
        self._many = vocabulary > _FEW
        self._chain = SamplerChain([llama_cpp.llama_sampler_init_dist(seed)])
        self._random = random.Random(seed)  # noqa: S311 - the client chooses the seed

    @override
    def sample(self, logits: Logits, best: int) -> int:
        with np.errstate(over="ignore", divide="ignore"):
            if not self._many:
                return self._choose(self._candidates.all_ids, self._relative(logits, logits[best]))
            floor = logits[best] - np.float32(self._depth) * self._temperature
            likely = logits >= floor
            if np.count_nonzero(likely) < min(_LIKELY, len(logits)):
                ids = np.flatnonzero(likely).astype(np.int32)
                return self._sample_likely(ids, logits, logits[best], floor)
            return self._sample_block(self._relative(logits, logits[best]))

    @override
    def accept(self, token: int) -> None:
        pass

    @override
    def close(self) -> None:
        self._chain.close()

    def _sample_likely(self, likely: Ids, logits: Logits, best: np.float32, floor: np.float32) -> int:
        """Draw from few likely tokens and, by rejection sampling (von Neumann, 1951), from those below the floor.

        At the floor a token has the mass of the best one divided by the number of tokens. So all others are bounded by
        a candidate that stands for every token with that mass. Where it is chosen, one token is, and is taken by its
        share of its bound. If not, the draw begins again, which one of two draws does at most.
        """
        ids = np.append(likely, np.int32(_OTHERS))
        shares = self._relative(logits[ids], best)
        shares[-1] = 0.0
        while (token := self._choose(ids, shares)) == _OTHERS:
            token = self._random.randrange(len(logits))
            if logits[token] < floor:
                share = (float(logits[token]) - float(best)) / float(self._temperature) + self._depth
                if self._random.random() < math.exp(share):
                    break
        return token

    def _sample_block(self, logits: Logits) -> int:
        """Draw a block of the vocabulary by its mass, then a token of it by its share of that mass."""
        starts = self._candidates.all_ids[::_BLOCK]
        weights = np.exp(logits, out=self._candidates.weights)
        start = self._choose(starts, np.log(np.add.reduceat(weights, starts)))
        ids = self._candidates.all_ids[start : start + _BLOCK]
        return self._choose(ids, logits[ids])

    def _relative(self, logits: Logits, best: np.float32) -> Logits:
        """Change logits to their distance from the best one, divided by the temperature."""
        logits -= best
        if self._temperature != 1:
            logits /= self._temperature
        return logits

    def _choose(self, ids: Ids, logits: Logits) -> int:
        return self._candidates.sample(self._chain, ids, logits)
