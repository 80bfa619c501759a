"""Penalties on tokens that occur in the text."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import llama_cpp
import numpy as np

from engine.request import Sampling
from engine.sampling import dry
from engine.sampling.candidates import Candidates, Ids, Logits
from engine.sampling.chain import SamplerChain, accept
from engine.sampling.resources import SamplerResources

if TYPE_CHECKING:
    from llama_cpp.llama_cpp import llama_sampler_p

NAMES = {"penalties", "dry"}
"""llama.cpp's names of the samplers that change only the logits of tokens in the text."""


def penalty_samplers(
    name: str, sampling: Sampling, prompt: list[int], resources: SamplerResources
) -> Iterator["llama_sampler_p"]:
    """Yield llama.cpp's samplers for one of `NAMES`, with the prompt as their text.

    `repeat_penalty` and DRY count prompt and generated tokens, as in llama.cpp. `frequency_penalty` and
    `presence_penalty` count generated tokens, as in OpenAI's API.
    """
    context, vocabulary = resources.context, resources.candidates.vocabulary
    counted = _counted(name, sampling, prompt, context)
    if name == "dry":
        yield _with_text(resources.dry.sampler(sampling), counted)
        return
    window = _repeat_window(sampling, context)
    repeat = llama_cpp.llama_sampler_init_penalties(vocabulary, window, sampling.repeat_penalty, 0.0, 0.0)
    yield _with_text(repeat, counted)
    yield llama_cpp.llama_sampler_init_penalties(
        vocabulary, context, 1.0, sampling.frequency_penalty, sampling.presence_penalty
    )


def wanted(sampling: Sampling) -> bool:
    """Return whether `penalties` has an effect."""
    return _repeats(sampling) or sampling.frequency_penalty != 0.0 or sampling.presence_penalty != 0.0


class Penalties:
    """A chain of penalties, applied only to tokens that count, because llama.cpp would look up every candidate."""

    def __init__(
        self, names: tuple[str, ...], sampling: Sampling, prompt: list[int], resources: SamplerResources
    ) -> None:
        """Make the samplers; `names` are of `NAMES`, in their order."""
        self._candidates: Candidates = resources.candidates
        self._chain = SamplerChain(
            sampler for name in names for sampler in penalty_samplers(name, sampling, prompt, resources)
        )
        self._seen = set().union(*(_counted(name, sampling, prompt, resources.context) for name in names))
        self._ids: Ids = np.array(list(self._seen), np.int32)

    def apply(self, logits: Logits) -> None:
        """Change the logits, one for each token of the vocabulary, in place."""
        logits[self._ids] = self._candidates.adjust(self._chain, self._ids, logits[self._ids])

    def accept(self, token: int) -> None:
        """Add a generated token to the text."""
        self._chain.accept(token)
        if token not in self._seen:
            self._seen.add(token)
            self._ids = np.append(self._ids, np.int32(token))

    def close(self) -> None:
        """Free the samplers. Repeatable."""
        self._chain.close()


def _counted(name: str, sampling: Sampling, prompt: list[int], context: int) -> list[int]:
    """Return the tokens of a prompt that a sampler looks at: its end, or for a penalty on the whole text each once."""
    if name == "dry":
        window = dry.window(sampling, context)
    elif not _repeats(sampling):
        return []
    elif (window := _repeat_window(sampling, context)) == context:
        return list(dict.fromkeys(prompt))
    return prompt[max(0, len(prompt) - window) :]


def _repeats(sampling: Sampling) -> bool:
    return sampling.repeat_penalty != 1.0 and sampling.repeat_last_n != 0


def _repeat_window(sampling: Sampling, context: int) -> int:
    return context if sampling.repeat_last_n < 0 else min(sampling.repeat_last_n, context)


def _with_text(sampler: "llama_sampler_p", tokens: list[int]) -> "llama_sampler_p":
    for token in tokens:
        accept(sampler, token)
    return sampler
