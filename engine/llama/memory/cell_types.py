"""The types of the numbers in a cell of the KV cache, and what a model and a device can do with them."""

import re
from collections.abc import Collection
from dataclasses import dataclass

import llama_cpp

from engine.config import EngineConfig, KVType
from engine.errors import LoadError
from engine.llama.attention import Attention
from engine.llama.ggml_functions import libggml

_BF16 = 30  # GGML_TYPE_BF16 in ggml.h, which the bindings lack
_LARGEST_BLOCK = 32
_TURN = 64
"""Numbers that llama.cpp turns together before it quantises keys."""
_CUDA_PAIRS = re.compile(r"FA_QUANTS = (\S+)")
"""The pairs that the CUDA kernels are built for, with commas between them."""


@dataclass(frozen=True, slots=True)
class CellType:
    """A type of numbers."""

    number: int
    """llama.cpp's number of the type."""
    block: int = 1
    """Numbers that share a scale; 1 if each stands alone."""


CELL_TYPES: dict[KVType, CellType] = {
    "f32": CellType(llama_cpp.GGML_TYPE_F32),
    "f16": CellType(llama_cpp.GGML_TYPE_F16),
    "bf16": CellType(_BF16),
    "q8_0": CellType(llama_cpp.GGML_TYPE_Q8_0, 32),
    "q5_1": CellType(llama_cpp.GGML_TYPE_Q5_1, 32),
    "q5_0": CellType(llama_cpp.GGML_TYPE_Q5_0, 32),
    "q4_1": CellType(llama_cpp.GGML_TYPE_Q4_1, 32),
    "q4_0": CellType(llama_cpp.GGML_TYPE_Q4_0, 32),
    "iq4_nl": CellType(llama_cpp.GGML_TYPE_IQ4_NL, 32),
}


def relative_size(keys: KVType, values: KVType) -> float:
    """Return the size of cells with these types, relative to those of f16. Keys and values count as equally long."""

    def size(name: KVType) -> int:
        return int(libggml.ggml_row_size(CELL_TYPES[name].number, _LARGEST_BLOCK))

    return (size(keys) + size(values)) / (2 * size("f16"))


def check_cell_types(
    config: EngineConfig,
    keys: Collection[int],
    values: Collection[int],
    kind: Attention,
    rotated: Collection[int] = (),
) -> None:
    """Check that a model can have cells as configured. llama.cpp would return no reason, or die.

    Args:
        config: has the types.
        keys: sizes of the keys in one head.
        values: sizes of the values in one head.
        kind: the attention implementation.
        rotated: sizes of the parts of keys that positions rotate, if they do not rotate all.

    Raises:
        LoadError: it cannot.
    """
    for flag, name, sizes, part in (("k", config.kv_type_k, keys, "key"), ("v", config.kv_type_v, values, "value")):
        block = CELL_TYPES[name].block
        if wrong := [size for size in sizes if size % block]:
            raise LoadError(
                f"--kv-type-{flag} {name} needs {part}s of a multiple of {block} numbers in each head, and this model "
                f"has {min(wrong)}: choose f16 or bf16"
            )
    if config.context_shift:
        _check_shift(config.kv_type_k, keys, rotated)
    if not kind.flash and CELL_TYPES[config.kv_type_v].block > 1:
        raise LoadError(f"--kv-type-v {config.kv_type_v} needs flash attention: choose --flash-attention on")


def _check_shift(name: KVType, keys: Collection[int], rotated: Collection[int]) -> None:
    """Check that llama.cpp can move keys to other positions. It dies of others at the first shift.

    Raises:
        LoadError: it cannot.
    """
    if name == "bf16":
        raise LoadError("--context-shift cannot be used with --kv-type-k bf16: choose f16 or f32")
    if CELL_TYPES[name].block > 1 and (wrong := [size for size in keys if size % _TURN]):
        raise LoadError(
            f"--context-shift with --kv-type-k {name} needs keys of a multiple of {_TURN} numbers in each head, and "
            f"this model has {min(wrong)}: choose f16"
        )
    if CELL_TYPES[name].block > 1 and (parts := set(rotated) - set(keys)):
        raise LoadError(
            f"--context-shift with --kv-type-k {name} needs keys that positions rotate as a whole, and this model "
            f"rotates {min(parts)} numbers of {max(keys)}: choose f16"
        )


def check_cuda(config: EngineConfig, kind: Attention, build: str) -> None:
    """Check that the CUDA kernels of this build can read the cells. Others are copied as f16 in each step, or read
    by the CPU.

    Args:
        config: has the types.
        kind: the attention implementation.
        build: llama.cpp's description of its build.

    Raises:
        LoadError: they cannot.
    """
    pair = config.kv_type_k, config.kv_type_v
    if not kind.flash or all(CELL_TYPES[name].block == 1 for name in pair):
        return
    found = _CUDA_PAIRS.search(build)
    pairs = found[1].split(",") if found else []
    if "iq4_nl" in pair or not {"all", "-".join(pair)} & set(pairs):
        raise LoadError(
            f"this build of llama.cpp has no CUDA kernel for --kv-type-k {pair[0]} with --kv-type-v {pair[1]}: choose "
            f"one of {', '.join(pairs) or 'f16 and bf16'}"
        )
