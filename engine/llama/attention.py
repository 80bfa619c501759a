"""The choice between llama.cpp's two attention implementations, and its effect on steps.

With flash attention a row costs by its own tokens. On CPUs only steps of 64 tokens or more use it: measured on x86
with AVX-512, behind 1,900 tokens, 16 tokens take 0.42 s and 64 take 0.57. Without it 16 take 0.16 s, 32 take 0.26 and
64 take 0.47, so that a long prompt can be computed in short steps. But then every row costs by the tokens of the
longest one in its step: eight rows of 200 take 0.15 s, and 0.55 with a ninth one of 2,000.
"""

from dataclasses import dataclass

import llama_cpp

_SMALLEST_HEAD = 32
"""Numbers. The flash attention kernels take as many at a time: heads of 8 take 1.8 times as long with them."""


@dataclass(frozen=True, slots=True)
class Attention:
    """An attention implementation."""

    kind: int
    """llama.cpp's number for it."""
    chunk: int
    """Approximate number of tokens below which a smaller prompt step takes no less time."""
    batch: int
    """Tokens of the largest physical batch. Without flash attention each takes memory for the whole context."""


FLASH = Attention(llama_cpp.LLAMA_FLASH_ATTN_TYPE_ENABLED, chunk=64, batch=512)
AUTO = Attention(llama_cpp.LLAMA_FLASH_ATTN_TYPE_AUTO, chunk=64, batch=512)
NO_FLASH = Attention(llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED, chunk=16, batch=128)


def choose_attention(asked: bool | None, head: int) -> Attention:
    """Return the implementation to use.

    Args:
        asked: the operator's choice; None leaves it to the size of a head.
        head: numbers in the key of one head.
    """
    if asked is None:
        return AUTO if head >= _SMALLEST_HEAD else NO_FLASH
    return FLASH if asked else NO_FLASH
