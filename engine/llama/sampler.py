"""How one sequence draws its tokens: llama.cpp's samplers, in its order, with as few candidates as they need."""

import math
import random
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

import llama_cpp
import numpy as np

from engine.llama.candidates import Candidates, Ids, Logits
from engine.llama.chain import SamplerChain
from engine.llama.cuts import above_min_p, nucleus
from engine.llama.penalties import Penalties
from engine.request import Sampling

if TYPE_CHECKING:
    from llama_cpp.llama_cpp import llama_sampler_p

_SEED_BITS = 32
_STAND_IN_SEED = 0x5EED5EED
"""For the seed that asks llama.cpp to draw one: whoever gives it wants it repeatable. Far from those of `n` choices."""
_BLOCK = 512
"""Tokens. Near the root of a large vocabulary, so that both stages of a plain draw are short."""
_FEW = 8 * _BLOCK
"""Tokens. llama.cpp draws from so few as fast."""


class DrawError(Exception):
    """No token can be drawn from these logits."""


class SequenceSampler:
    """Draws the tokens of one sequence, in the order bias, penalties, top_k, top_p, min_p, temperature, chance.

    Owns its samplers in llama.cpp, and frees them once.
    """

    def __init__(
        self,
        sampling: Sampling,
        seed: int | None,
        candidates: Candidates,
        *,
        prompt: list[int],
        end_tokens: Iterable[int],
        context: int,
    ) -> None:
        """Make ready for the first draw.

        Args:
            sampling: how to draw.
            seed: of this sequence alone; None draws one.
            candidates: the working array, which sequences share.
            prompt: the tokens in front of the first one drawn.
            end_tokens: the ids that end a generation, for `ignore_eos`.
            context: tokens the sequence can have.

        Raises `IndexError` for a biased id outside the vocabulary.
        """
        self._sampling = sampling
        self._greedy = np.float32(sampling.temperature) <= 0  # llama.cpp's floats are these
        self._candidates = candidates
        self._bias_ids, self._biases = _biases(sampling, end_tokens)
        if self._bias_ids.size and not 0 <= self._bias_ids.min() <= self._bias_ids.max() < len(candidates.all_ids):
            raise IndexError("logit_bias names a token outside the vocabulary")
        self._penalties: Penalties | None = None
        with ExitStack() as owned:
            self._chain = owned.enter_context(closing(SamplerChain(_samplers(sampling, _seed(seed)))))
            if Penalties.wanted(sampling):
                self._penalties = owned.enter_context(closing(Penalties(sampling, prompt, candidates, context)))
            self._owned = owned.pop_all()

    def draw(self, logits: Logits) -> int:
        """The next token's id, from one logit for each token of the vocabulary. Changes them in place.

        Raises `DrawError` where they leave nothing to draw.
        """
        logits[self._bias_ids] += self._biases
        if self._penalties:
            self._penalties.apply(logits)
        likeliest = int(logits.argmax())  # a NaN, if there is one
        if not math.isfinite(logits[likeliest]):
            raise DrawError("the model gave no finite logits")
        token = likeliest
        if not self._greedy:
            token = self._chance(logits - logits[likeliest])
        if self._penalties:
            self._penalties.accept(token)
        return token

    def close(self) -> None:
        """Free the samplers. Repeatable."""
        self._owned.close()

    def _chance(self, logits: Logits) -> int:
        """Draw by chance, from logits relative to the best one."""
        sampling = self._sampling
        if _is_plain(sampling):
            return self._plain_chance(logits)
        if sampling.top_k > 0:  # its partial sort is fast enough
            return self._sample(self._candidates.all_ids, logits)
        ids = nucleus(logits, sampling.top_p) if sampling.top_p < 1 else above_min_p(logits, sampling.min_p)
        return self._sample(ids, logits[ids])

    def _plain_chance(self, logits: Logits) -> int:
        """Draw from the model's own distribution.

        A block of the vocabulary is drawn by its mass, then a token by its share of that mass: together the same
        probability as in one draw from all, for a tenth of the work.
        """
        ids = self._candidates.all_ids
        with np.errstate(over="ignore", divide="ignore"):
            logits = logits / np.float32(self._sampling.temperature)
            if len(ids) > _FEW:
                starts = ids[::_BLOCK]
                masses = np.log(np.add.reduceat(np.exp(logits), starts))
                start = self._sample(starts, masses)
                ids = ids[start : start + _BLOCK]
        return self._sample(ids, logits[ids])

    def _sample(self, ids: Ids, logits: Logits) -> int:
        token = self._candidates.sample(self._chain, ids, logits)
        if token is None:
            raise DrawError("llama.cpp's samplers chose no token")
        return token


def _is_plain(sampling: Sampling) -> bool:
    """Whether nothing is cut off the model's distribution."""
    return sampling.top_k <= 0 and sampling.top_p >= 1 and sampling.min_p <= 0


def _samplers(sampling: Sampling, seed: int) -> Iterator["llama_sampler_p"]:
    """What `cuts` and the temperature of a plain draw leave to do."""
    if sampling.top_k > 0:
        yield llama_cpp.llama_sampler_init_top_k(sampling.top_k)
        yield llama_cpp.llama_sampler_init_top_p(sampling.top_p, 1)
    if not _is_plain(sampling):
        yield llama_cpp.llama_sampler_init_min_p(sampling.min_p, 1)
        yield llama_cpp.llama_sampler_init_temp(sampling.temperature)
    yield llama_cpp.llama_sampler_init_dist(seed)


def _seed(seed: int | None) -> int:
    if seed is None:
        return random.SystemRandom().randrange(llama_cpp.LLAMA_DEFAULT_SEED)
    seed %= 1 << _SEED_BITS
    return _STAND_IN_SEED if seed == llama_cpp.LLAMA_DEFAULT_SEED else seed


def _biases(sampling: Sampling, end_tokens: Iterable[int]) -> tuple[Ids, Logits]:
    """Distinct ids and what is added to the logit of each."""
    biases: dict[int, float] = {}
    for token, bias in sampling.logit_bias:
        biases[token] = biases.get(token, 0.0) + bias
    if sampling.ignore_eos:
        biases.update(dict.fromkeys(end_tokens, -math.inf))
    return np.array(list(biases), np.int32), np.array(list(biases.values()), np.float32)
