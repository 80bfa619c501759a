"""DRY samplers, which penalise tokens that would extend a repetition."""

import ctypes
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, TypeAlias

import llama_cpp

from engine.request import Sampling
from engine.sampling.chain import made

if TYPE_CHECKING:
    from llama_cpp.llama_cpp import llama_sampler_p

_TEMPLATES = 16
_Key: TypeAlias = tuple[float, float, int, int, tuple[str, ...]]
"""Everything that a sampler depends on: multiplier, base, allowed length, window, sequence breakers."""


class DryTemplates:
    """Prepared samplers to copy. Owns them. Any thread may use the object.

    llama.cpp searches the whole vocabulary for each sequence breaker, which takes some 7 ms a breaker with 152k tokens;
    a copy takes 0.1 ms.
    """

    def __init__(self, vocab: int, context: int) -> None:
        """Start without templates.

        Args:
            vocab: the C vocabulary of the model, which must outlive this object.
            context: number of tokens of a slot, which is the meaning of `dry_penalty_last_n` = -1.
        """
        self._vocab = vocab
        self._context = context
        self._templates: OrderedDict[_Key, llama_sampler_p] = OrderedDict()
        self._lock = threading.Lock()

    def prepare(self, sampling: Sampling) -> None:
        """Make the template in advance, so that `sampler` is fast. llama.cpp must be able to use its breakers.

        Raises:
            MemoryError: llama.cpp could not make it.
        """
        key = self._key(sampling)
        with self._lock:
            known = key in self._templates
            if known:
                self._templates.move_to_end(key)
        if not known:
            template = self._make(key)  # without the lock, for which a step would wait
            with self._lock:
                self._keep(key, template)

    def sampler(self, sampling: Sampling) -> "llama_sampler_p":
        """Return a sampler without any text. The caller owns it.

        Raises:
            MemoryError: llama.cpp could not make it.
        """
        with self._lock:
            key = self._key(sampling)
            if key not in self._templates:
                self._keep(key, self._make(key))
            self._templates.move_to_end(key)
            copy: llama_sampler_p = llama_cpp.llama_sampler_clone(self._templates[key])
        return copy

    def close(self) -> None:
        """Free the templates. Repeatable."""
        with self._lock:
            while self._templates:
                llama_cpp.llama_sampler_free(self._templates.popitem()[1])

    def _key(self, sampling: Sampling) -> _Key:
        return (
            sampling.dry_multiplier,
            sampling.dry_base,
            sampling.dry_allowed_length,
            window(sampling, self._context),
            sampling.dry_sequence_breakers,
        )

    def _make(self, key: _Key) -> "llama_sampler_p":
        *numbers, texts = key
        breakers = (ctypes.c_char_p * len(texts))(*(text.encode() for text in texts))
        return made(llama_cpp.llama_sampler_init_dry(self._vocab, *numbers, breakers, len(texts)))

    def _keep(self, key: _Key, template: "llama_sampler_p") -> None:
        if key in self._templates:
            llama_cpp.llama_sampler_free(template)
            return
        self._templates[key] = template
        if len(self._templates) > _TEMPLATES:
            llama_cpp.llama_sampler_free(self._templates.popitem(last=False)[1])


def window(sampling: Sampling, context: int) -> int:
    """Return the number of last tokens that DRY looks at, of a text of `context` tokens at most."""
    return context if sampling.dry_penalty_last_n < 0 else min(sampling.dry_penalty_last_n, context)


def wanted(sampling: Sampling) -> bool:
    """Return whether DRY has an effect."""
    return sampling.dry_multiplier != 0 and sampling.dry_base >= 1 and sampling.dry_penalty_last_n != 0
