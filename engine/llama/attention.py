"""The choice between llama.cpp's two attention implementations, and its effect on steps.

With flash attention a row costs by its own tokens. On CPUs, chunks of 64 tokens or more are computed in tiles of 64,
and smaller ones row by row: measured on x86 with AVX-512, behind 1,024 tokens, 32 tokens take 0.80 s of CPU, 63 take
1.50, 64 take 0.67 and 96 take 1.13, almost as much as 128. Without it 32 take 0.45 s and 64 take 0.81, so that a long
prompt can be computed in short steps. But then every row costs by the tokens of the longest one in its step, rounded up
to a multiple of 256: eight decode rows take 0.25 s instead of 0.20 behind 64 tokens, and 0.37 instead of 0.49 behind
1,000. A single row takes 42 ms instead of 54 behind 1,900, and 59 instead of 95 behind 3,800.
"""

from dataclasses import dataclass, replace

import llama_cpp

from engine.config import EngineConfig
from engine.llama.cpu import is_x86

_SMALLEST_HEAD = 32
"""Numbers. The flash attention kernels take as many at a time: heads of 8 take 1.8 times as long with them."""

_LONG = 2048
"""Tokens of a slot. Shorter ones have no rows so deep that they gain without flash attention."""

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


FLASH = Attention(llama_cpp.LLAMA_FLASH_ATTN_TYPE_ENABLED, chunk=64, tile=64, batch=512)
AUTO = Attention(llama_cpp.LLAMA_FLASH_ATTN_TYPE_AUTO, chunk=64, tile=64, batch=512)
NO_FLASH = Attention(llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED, chunk=16, tile=1, batch=128, shares_depth=True)


def choose_attention(config: EngineConfig, head: int, context: int, *, generates: bool, offloads: bool) -> Attention:
    """Return the implementation to use, with the chunks of devices if layers are offloaded to some.

    Args:
        config: the operator's choices.
        head: numbers in the key of one head.
        context: tokens that the model allows in a slot.
        generates: whether the model generates text. Texts to embed are short, and computed at once.
        offloads: whether layers are offloaded to a device.
    """
    asked = True if config.hardware.split_mode == "tensor" else config.flash_attention
    if asked is None:
        deep = generates and not offloads and _has_deep_rows(config, context)
        chosen = NO_FLASH if head < _SMALLEST_HEAD or deep else AUTO
    else:
        chosen = FLASH if asked else NO_FLASH
    return replace(chosen, chunk=_DEVICE_CHUNK) if offloads else chosen


def _has_deep_rows(config: EngineConfig, context: int) -> bool:
    """Return whether rows may be so deep that an x86 CPU computes them faster without flash attention.

    In a unified cache each row would cost as much as the cells of all. Other types of cells are not measured.
    """
    own_cells = not config.kv_unified and config.kv_type_k == config.kv_type_v == "f16"
    return is_x86() and own_cells and min(config.context or context, context) > _LONG
