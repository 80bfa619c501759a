"""The sampler for the text of a gap, by which editors complete code."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import llama_cpp

if TYPE_CHECKING:
    from llama_cpp.llama_cpp import llama_sampler_p

MOST_CANDIDATES = 128
"""Candidates that the sampler compares with each other: 0.5 ms for a draw. llama-server has no limit."""


def infill_samplers(vocab: int) -> Iterator["llama_sampler_p"]:
    """Yield the samplers. They leave the likely tokens, or the one that ends the text if no other is likely.

    Args:
        vocab: the C vocabulary. llama.cpp ends the process if it has no token that ends a text; then there is no
            sampler. The same for 0.
    """
    if vocab and _ends(vocab):
        yield llama_cpp.llama_sampler_init_top_k(MOST_CANDIDATES)
        yield llama_cpp.llama_sampler_init_infill(vocab)


def _ends(vocab: int) -> bool:
    ids = llama_cpp.llama_vocab_eot(vocab), llama_cpp.llama_vocab_eos(vocab)
    return any(token != llama_cpp.LLAMA_TOKEN_NULL for token in ids)
