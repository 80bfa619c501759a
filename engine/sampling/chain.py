"""Ownership of llama.cpp's samplers."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import llama_cpp

from engine.sampling.native_calls import short

if TYPE_CHECKING:
    from llama_cpp.llama_cpp import llama_sampler_p

accept = short(llama_cpp.llama_sampler_accept)
"""Adds a token to the text of a sampler."""


class SamplerChain:
    """Several of llama.cpp's samplers in a row. Owns them all and frees them once."""

    def __init__(self, samplers: Iterable["llama_sampler_p"]) -> None:
        """Take over the samplers one by one.

        Raises:
            MemoryError: llama.cpp could not make one of them.
        """
        self._handle: llama_sampler_p | None = made(
            llama_cpp.llama_sampler_chain_init(llama_cpp.llama_sampler_chain_default_params())
        )
        try:
            for sampler in samplers:
                llama_cpp.llama_sampler_chain_add(self._handle, made(sampler))
        except BaseException:
            self.close()
            raise

    @property
    def handle(self) -> "llama_sampler_p":
        """The C chain.

        Raises:
            ValueError: the chain is closed.
        """
        if not self._handle:
            raise ValueError("the sampler is closed")
        return self._handle

    def accept(self, token: int) -> None:
        """Add a token to the text that every sampler looks at."""
        accept(self.handle, token)

    def close(self) -> None:
        """Free the samplers. Repeatable."""
        handle, self._handle = self._handle, None
        if handle:
            llama_cpp.llama_sampler_free(handle)


def made(sampler: "llama_sampler_p | None") -> "llama_sampler_p":
    """Return a new sampler.

    Raises:
        MemoryError: llama.cpp could not make it.
    """
    if not sampler:
        raise MemoryError("llama.cpp could not make a sampler")
    return sampler
