"""Penalties on tokens that the text already has."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

import llama_cpp
import numpy as np

from engine.llama.candidates import Candidates, Logits
from engine.llama.chain import SamplerChain
from engine.request import Sampling

if TYPE_CHECKING:
    from llama_cpp.llama_cpp import llama_sampler_p


class Penalties:
    """llama.cpp's penalties, asked of the tokens in the text alone: it would look every token of the vocabulary up.

    `repeat_penalty` looks back over prompt and generated tokens, as llama.cpp has it; `frequency_penalty` and
    `presence_penalty` over generated ones, as OpenAI has it. So they are two samplers with memories of their own.
    """

    def __init__(self, sampling: Sampling, prompt: list[int], candidates: Candidates, context: int) -> None:
        """`context` is the number of tokens a sequence can have, which "the whole context" means."""
        self._candidates = candidates
        vocabulary = len(candidates.all_ids)
        window = context if sampling.repeat_last_n < 0 else min(sampling.repeat_last_n, context)
        frequency, presence = sampling.frequency_penalty, sampling.presence_penalty
        repeat = sampling.repeat_penalty
        self._seen: dict[int, None] = {}
        with ExitStack() as owned:
            on_all = SamplerChain(_penalties(vocabulary, window, repeat, 0.0, 0.0))
            self._on_all = owned.enter_context(closing(on_all))
            on_generated = SamplerChain(_penalties(vocabulary, context, 1.0, frequency, presence))
            self._on_generated = owned.enter_context(closing(on_generated))
            self._accept(self._on_all, prompt[len(prompt) - min(window, len(prompt)) :])
            self._owned = owned.pop_all()

    @staticmethod
    def wanted(sampling: Sampling) -> bool:
        """Whether a request penalises anything."""
        repeats = sampling.repeat_penalty != 1.0 and sampling.repeat_last_n != 0
        return repeats or sampling.frequency_penalty != 0.0 or sampling.presence_penalty != 0.0

    def apply(self, logits: Logits) -> None:
        """Change the logits, one for each token of the vocabulary, in place."""
        ids = np.fromiter(self._seen, np.int32, len(self._seen))
        for chain in (self._on_all, self._on_generated):
            logits[ids] = self._candidates.adjust(chain, ids, logits[ids])

    def accept(self, token: int) -> None:
        """Take a generated token into account from now on."""
        self._accept(self._on_all, (token,))
        self._accept(self._on_generated, (token,))

    def close(self) -> None:
        """Free the samplers. Repeatable."""
        self._owned.close()

    def _accept(self, chain: SamplerChain, tokens: Iterable[int]) -> None:
        for token in tokens:
            chain.accept(token)
            self._seen[token] = None


def _penalties(
    vocabulary: int, window: int, repeat: float, frequency: float, presence: float
) -> Iterator["llama_sampler_p"]:
    yield llama_cpp.llama_sampler_init_penalties(vocabulary, window, repeat, frequency, presence)
