"""Penalties on tokens that the text already has."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import llama_cpp
import numpy as np

from engine.request import Sampling
from engine.sampling import dry
from engine.sampling.candidates import Candidates, Ids, Logits
from engine.sampling.chain import SamplerChain
from engine.sampling.resources import SamplerResources

if TYPE_CHECKING:
    from llama_cpp.llama_cpp import llama_sampler_p

NAMES = {"penalties", "dry"}
"""llama.cpp's names of the samplers that change only the logits of tokens in the text."""


def penalty_samplers(
    name: str, sampling: Sampling, prompt: list[int], resources: SamplerResources
) -> Iterator["llama_sampler_p"]:
    """llama.cpp's samplers for one of `NAMES`, which know the prompt and are told of every token drawn.

    `repeat_penalty` and DRY look back over prompt and generated tokens, as llama.cpp has it; `frequency_penalty` and
    `presence_penalty` over generated ones, as OpenAI has it.
    """
    context, vocabulary = resources.context, len(resources.candidates.all_ids)
    if name == "dry":
        yield _told(resources.dry.sampler(sampling), prompt)
        return
    window = context if sampling.repeat_last_n < 0 else min(sampling.repeat_last_n, context)
    repeat = llama_cpp.llama_sampler_init_penalties(vocabulary, window, sampling.repeat_penalty, 0.0, 0.0)
    yield _told(repeat, prompt[len(prompt) - min(window, len(prompt)) :])
    yield llama_cpp.llama_sampler_init_penalties(
        vocabulary, context, 1.0, sampling.frequency_penalty, sampling.presence_penalty
    )


def wanted(name: str, sampling: Sampling) -> bool:
    """Whether a request penalises anything by one of `NAMES`."""
    if name == "dry":
        return dry.wanted(sampling)
    repeats = sampling.repeat_penalty != 1.0 and sampling.repeat_last_n != 0
    return repeats or sampling.frequency_penalty != 0.0 or sampling.presence_penalty != 0.0


class Penalties:
    """Penalties in a row, asked of the tokens in the text alone: llama.cpp would look every candidate up."""

    def __init__(
        self, names: Iterable[str], sampling: Sampling, prompt: list[int], resources: SamplerResources
    ) -> None:
        """`names` are of `NAMES`, in the order in which they apply."""
        self._candidates: Candidates = resources.candidates
        self._chain = SamplerChain(
            sampler for name in names for sampler in penalty_samplers(name, sampling, prompt, resources)
        )
        self._seen = set(prompt)
        self._ids: Ids = np.unique(np.array(prompt, np.int32))

    def apply(self, logits: Logits) -> None:
        """Change the logits, one for each token of the vocabulary, in place."""
        logits[self._ids] = self._candidates.adjust(self._chain, self._ids, logits[self._ids])

    def accept(self, token: int) -> None:
        """Take a generated token into account from now on."""
        self._chain.accept(token)
        if token not in self._seen:
            self._seen.add(token)
            self._ids = np.append(self._ids, np.int32(token))

    def close(self) -> None:
        """Free the samplers. Repeatable."""
        self._chain.close()


def _told(sampler: "llama_sampler_p", tokens: Iterable[int]) -> "llama_sampler_p":
    for token in tokens:
        llama_cpp.llama_sampler_accept(sampler, token)
    return sampler
