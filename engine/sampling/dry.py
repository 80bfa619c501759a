"""DRY samplers, which penalise tokens that would extend a repetition."""

import ctypes
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

import llama_cpp

from engine.request import Sampling

if TYPE_CHECKING:
    from llama_cpp.llama_cpp import llama_sampler_p

_TEMPLATES = 16


class DryTemplates:
    """Prepared samplers to copy. Owns them. Any thread may use the object.

    llama.cpp searches the whole vocabulary for each sequence breaker, which takes some 7 ms a breaker with 152k tokens;
    a copy takes 0.1 ms.
    """

    def __init__(self, vocab: int, context: int) -> None:
        """Start without templates.

        Args:
            vocab: the C vocabulary.
            context: number of tokens of a slot, which is the meaning of `dry_penalty_last_n` = -1.
        """
        self._vocab = vocab
        self._context = context
        self._templates: OrderedDict[tuple[object, ...], llama_sampler_p] = OrderedDict()
        self._lock = threading.Lock()

    def prepare(self, sampling: Sampling) -> None:
        """Make the template in advance, so that `sampler` is fast.

        Raises:
            MemoryError: llama.cpp could not make it.
        """
        if wanted(sampling):
            with self._lock:
                self._template(sampling)

    def sampler(self, sampling: Sampling) -> "llama_sampler_p":
        """Return a sampler without any text. The caller owns it.

        Raises:
            MemoryError: llama.cpp could not make it.
        """
        with self._lock:
            copy: llama_sampler_p = llama_cpp.llama_sampler_clone(self._template(sampling))
        return copy

    def close(self) -> None:
        """Free the templates. Repeatable."""
        with self._lock:
            while self._templates:
                llama_cpp.llama_sampler_free(self._templates.popitem()[1])

    def _template(self, sampling: Sampling) -> "llama_sampler_p":
        window = sampling.dry_penalty_last_n
        numbers = (
            sampling.dry_multiplier,
            sampling.dry_base,
            sampling.dry_allowed_length,
            self._context if window < 0 else min(window, self._context),
        )
        key = (*numbers, sampling.dry_sequence_breakers)
        template = self._templates.get(key)
        if template is None:
            breakers = [text.encode() for text in sampling.dry_sequence_breakers]
            array = (ctypes.c_char_p * len(breakers))(*breakers)
            template = llama_cpp.llama_sampler_init_dry(self._vocab, *numbers, array, len(breakers))
            if not template:
                raise MemoryError("llama.cpp could not make a sampler")
            self._templates[key] = template
            if len(self._templates) > _TEMPLATES:
                llama_cpp.llama_sampler_free(self._templates.popitem(last=False)[1])
        self._templates.move_to_end(key)
        return template


def wanted(sampling: Sampling) -> bool:
    """Return whether DRY has an effect."""
    return sampling.dry_multiplier != 0 and sampling.dry_base >= 1 and sampling.dry_penalty_last_n != 0
