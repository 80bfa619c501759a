"""The samplers that llama.cpp computes on the device, as a part of the step."""

import ctypes
from collections.abc import Callable
from typing import Final, TypeAlias

import llama_cpp

from engine.sampling.chain import SamplerChain

BEST: Final = 128
"""Tokens of a row that they keep: more than the `top_k` that requests and models commonly have."""
_SUPPORTED = b"+"
"""Beginning of the name of a sampler that runs on the device. llama.cpp says it only there."""

SetSampler: TypeAlias = Callable[[int, SamplerChain | None], None]
"""Sets the sampler of a sequence of a context."""


class TopKSamplers:
    """A sampler for each sequence of a context, which keeps the best tokens: all are attached, or none.

    Owns them and frees them once. llama.cpp can attach each only once, so every change to attached makes new ones.
    """

    count: int
    """Number of tokens that they keep."""

    def __init__(self, sequences: int, vocabulary: int) -> None:
        """Start without samplers. Later they belong to the sequences from 0 on."""
        self.count = min(BEST, vocabulary)
        self._sequences = sequences
        self._chains: list[SamplerChain] = []
        self._configs: ctypes.Array[llama_cpp.llama_sampler_seq_config] | None = None

    @property
    def attached(self) -> bool:
        """True if they are attached."""
        return bool(self._chains)

    def put_into(self, params: llama_cpp.llama_context_params) -> None:
        """Make samplers and attach them to the context that is made with these parameters."""
        self._make()
        self._configs = (llama_cpp.llama_sampler_seq_config * self._sequences)()
        for at, chain in enumerate(self._chains):
            self._configs[at].seq_id, self._configs[at].sampler = at, ctypes.cast(chain.handle, ctypes.c_void_p)
        params.samplers, params.n_samplers = self._configs, self._sequences

    def attach(self, set_sampler: SetSampler) -> None:
        """Make samplers and attach them to a context, unless they are attached."""
        if not self.attached:
            self._make()
            for sequence, chain in enumerate(self._chains):
                set_sampler(sequence, chain)

    def detach(self, set_sampler: SetSampler) -> None:
        """Detach and free the samplers, if they are attached."""
        if self.attached:
            for sequence in range(self._sequences):
                set_sampler(sequence, None)
            self.close()

    @property
    def supported(self) -> bool:
        """True if the device can run them. If not, llama.cpp copies all logits. Only after they were attached."""
        sampler = llama_cpp.llama_sampler_chain_get(self._chains[0].handle, 0)
        return bool(llama_cpp.llama_sampler_name(sampler).startswith(_SUPPORTED))

    def close(self) -> None:
        """Free the samplers. Repeatable. A context that they are attached to must be closed."""
        while self._chains:
            self._chains.pop().close()

    def _make(self) -> None:
        for _ in range(self._sequences):
            self._chains.append(SamplerChain([llama_cpp.llama_sampler_init_top_k(self.count)]))
