"""The choice between llama.cpp's two attention implementations, and its effect on steps.

With flash attention a row costs by its own tokens. On CPUs, chunks of 64 tokens or more are computed in tiles of 64,
and smaller ones row by row: measured on x86 with AVX-512, behind 1,024 tokens, 32 tokens take 0.80 s of CPU, 63 take
1.50, 64 take 0.67 and 96 take 1.13, almost as much as 128. Without it 32 take 0.45 s and 64 take 0.81, so that a long
prompt can be computed in short steps. But then every row costs by the tokens of the longest one in its call, rounded up
to a multiple of 256: eight decode rows take 0.25 s instead of 0.20 behind 64 tokens, and 0.37 instead of 0.49 behind
1,000. One row takes 22 ms instead of 19 behind 70 tokens, and 59 instead of 95 behind 3,800.
"""

from dataclasses import dataclass, replace

import llama_cpp

_SMALLEST_HEAD = 32
"""Numbers. The flash attention kernels take as many at a time: heads of 8 take 1.8 times as long with them."""

_DEVICE_CHUNK = 128
"""Tokens. llama.cpp's authors measured a 7B model on a GPU: batches of 128 tokens have 0.64 of the speed of 512, those
of 256 have 0.86. A GPU that keeps to the step target with more tokens computes more at once."""


@dataclass(frozen=True, slots=True)
class Attention:
    """An attention implementation."""

    kind: int
    """llama.cpp's number for it."""
    chunk: int
    """Approximate number of tokens below which a smaller prompt step takes no less time."""
    tile: int
    """Number of tokens of a longer prompt step that attend together: a part of a tile takes as long as all of it."""
    batch: int
    """Tokens of the largest physical batch. Without flash attention each takes memory for the whole context."""
    shares_depth: bool = False
    """True if every row of a call costs as much as the deepest one in it."""

    @property
    def flash(self) -> bool:
        """True unless flash attention is off."""
        return self.kind != llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED


FLASH = Attention(llama_cpp.LLAMA_FLASH_ATTN_TYPE_ENABLED, chunk=64, tile=64, batch=512)
AUTO = Attention(llama_cpp.LLAMA_FLASH_ATTN_TYPE_AUTO, chunk=64, tile=64, batch=512)
NO_FLASH = Attention(llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED, chunk=16, tile=1, batch=128, shares_depth=True)


def choose_attention(asked: bool | None, head: int) -> Attention:
    """Return the implementation to use.

    Args:
        asked: the operator's choice; None leaves it to the size of a head.
        head: numbers in the key of one head.
    """
    if asked is None:
        return AUTO if head >= _SMALLEST_HEAD else NO_FLASH
    return FLASH if asked else NO_FLASH


def on_devices(attention: Attention) -> Attention:
    """Return the implementation with the chunks of devices that layers are offloaded to."""
    return replace(attention, chunk=_DEVICE_CHUNK)
