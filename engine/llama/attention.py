"""Which of llama.cpp's two ways to compute attention a context takes, and what that makes of its passes.

In blocks (flash attention) a row costs by its own tokens. On CPUs only passes of 64 tokens or more are computed that
way: measured on x86 with AVX-512, behind 1,900 tokens, 16 tokens take 0.42 s and 64 take 0.57. Without blocks 16 take
0.16 s, 32 take 0.26 and 64 take 0.47, so that a long prompt can be computed in short passes; but every row then costs
by the tokens of the longest one in its pass: eight rows of 200 take 0.15 s, and 0.55 with a ninth one of 2,000.
"""

from dataclasses import dataclass

import llama_cpp

_SMALLEST_HEAD = 32
"""Numbers. The kernels of blocks take as many at a time: heads of 8 take 1.8 times as long with them as without."""


@dataclass(frozen=True, slots=True)
class Attention:
    """A way to compute attention.

    Attributes:
        kind: llama.cpp's number for it.
        chunk: tokens of a prompt pass below which a smaller one takes no less time, about.
        batch: tokens of the largest physical batch. Without blocks each of them takes memory for the whole context.
    """

    kind: int
    chunk: int
    batch: int


BLOCKS = Attention(llama_cpp.LLAMA_FLASH_ATTN_TYPE_ENABLED, chunk=64, batch=512)
LLAMA_CPPS_CHOICE = Attention(llama_cpp.LLAMA_FLASH_ATTN_TYPE_AUTO, chunk=64, batch=512)
NO_BLOCKS = Attention(llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED, chunk=16, batch=128)


def choose_attention(asked: bool | None, head: int) -> Attention:
    """In blocks where that is asked for, or where nothing is and they gain; `head` is the numbers in one head's key."""
    if asked is None:
        return LLAMA_CPPS_CHOICE if head >= _SMALLEST_HEAD else NO_BLOCKS
    return BLOCKS if asked else NO_BLOCKS
