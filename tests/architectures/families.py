"""The architecture families: one small shape for each kind of memory that llama.cpp has."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias, TypeVar

import pytest
from _pytest.mark.structures import ParameterSet

from tests.repeat import thorough

T = TypeVar("T")

CONTEXT, WIDTH, HEADS, FFN, LAYERS, WINDOW = 2048, 64, 2, 96, 4, 24

Value: TypeAlias = bool | int | float | list[int]
Parameters: TypeAlias = dict[str, Value]


class Memory(Enum):
    """The kinds of memory that llama.cpp has for models."""

    ATTENTION = "attention"
    """Cells of all tokens."""
    WINDOW = "window"
    """Some layers attend to the last tokens only, and can do without the cells of others."""
    HYBRID = "hybrid"
    """Cells, and a state that each token changes."""
    RECURRENT = "recurrent"
    """Such a state only."""


@dataclass(frozen=True)
class Family:
    """An architecture and its hyper-parameters."""

    name: str
    """The name of the family in the tests."""
    architecture: str
    """The name of the architecture in GGUF."""
    parameters: Parameters
    """By their GGUF key, without the architecture."""
    memory: Memory = Memory.ATTENTION
    """The memory that it needs."""
    sharpness: float = 2.0
    """Factor of the queries. With more of it a token depends on few others much, and rounding makes more difference."""


_COMMON: Parameters = {
    "context_length": CONTEXT,
    "embedding_length": WIDTH,
    "block_count": LAYERS,
    "feed_forward_length": FFN,
    "attention.head_count": HEADS,
    "attention.head_count_kv": HEADS // 2,
    "attention.layer_norm_epsilon": 1e-5,
    "attention.layer_norm_rms_epsilon": 1e-5,
    "rope.dimension_count": WIDTH // HEADS,
}
_WINDOW: Parameters = {"attention.sliding_window": WINDOW, "attention.sliding_window_pattern": 2}
_GEMMA_4: Parameters = {
    "attention.sliding_window_pattern": [1, 0] * (LAYERS // 2),
    "attention.shared_kv_layers": 0,
    "attention.key_length_swa": WIDTH // HEADS,
    "attention.value_length_swa": WIDTH // HEADS,
    "embedding_length_per_layer_input": 8,
}
_EXPERTS: Parameters = {
    "expert_count": 4,
    "expert_used_count": 2,
    "expert_feed_forward_length": FFN // 2,
    "expert_shared_count": 1,
    "expert_shared_feed_forward_length": FFN // 2,
}
_MLA: Parameters = {
    "leading_dense_block_count": 1,
    "attention.head_count_kv": 1,
    "attention.q_lora_rank": 32,
    "attention.kv_lora_rank": 32,
    "attention.key_length": 40,
    "attention.value_length": 32,
    "attention.key_length_mla": 24,
    "attention.value_length_mla": 16,
    "rope.dimension_count": 8,
}
_PLM: Parameters = {"attention.head_count_kv": HEADS, "attention.kv_lora_rank": 32}
_SPARSE: Parameters = {
    "leading_dense_block_count": 1,
    "expert_gating_func": 2,
    "attention.indexer.head_count": HEADS // 2,
    "attention.indexer.key_length": 64,
    "attention.indexer.top_k": 32,
    "attention.indexer.block_size": 4,
    "attention.indexer.local_blocks": 1,
}
_DELTA: Parameters = {
    "ssm.conv_kernel": 4,
    "ssm.inner_size": 64,
    "ssm.state_size": 16,
    "ssm.time_step_rank": 4,
    "ssm.group_count": 2,
    "full_attention_interval": 2,
}
_MAMBA: Parameters = {"ssm.conv_kernel": 4, "ssm.inner_size": 2 * WIDTH, "ssm.state_size": 16, "ssm.time_step_rank": 8}
_MAMBA_2: Parameters = {**_MAMBA, "ssm.group_count": 1}
_NO_ATTENTION: Parameters = {"attention.head_count": 0, "attention.head_count_kv": 0, "feed_forward_length": 0}
_EVERY_SECOND: Parameters = {"attention.head_count_kv": [0, HEADS // 2] * (LAYERS // 2)}
_RWKV: Parameters = {
    "wkv.head_size": 64,  # as of real models: the kernel reads beyond smaller heads
    "attention.head_count": 0,
    "attention.decay_lora_rank": 8,
    "attention.iclr_lora_rank": 8,
    "attention.value_residual_mix_lora_rank": 8,
    "attention.gate_lora_rank": 8,
    "token_shift_count": 2,
}


def _family(name: str, architecture: str, *parameters: Parameters, **fields: Any) -> Family:
    merged = dict(_COMMON)
    for some in parameters:
        merged |= some
    return Family(name, architecture, merged, **fields)


FAMILIES = (
    _family("plain", "llama"),
    _family("gemma-2", "gemma2", _WINDOW, memory=Memory.WINDOW, sharpness=3),
    _family("gemma-3", "gemma3", _WINDOW, memory=Memory.WINDOW),
    _family("gemma-4", "gemma4", _WINDOW, _GEMMA_4, memory=Memory.WINDOW, sharpness=0.4),
    _family("gpt-oss", "gpt-oss", _WINDOW, _EXPERTS, memory=Memory.WINDOW),
    _family("qwen-3-moe", "qwen3moe", _EXPERTS),
    _family("deepseek-2", "deepseek2", _EXPERTS, _MLA),
    _family("plm", "plm", _PLM),
    _family("minimax-m3", "minimax-m3", _EXPERTS, _SPARSE),
    _family("qwen-3-next", "qwen3next", _EXPERTS, _DELTA, memory=Memory.HYBRID),
    _family("qwen-3.5", "qwen35", _DELTA, {"rope.dimension_sections": [8, 4, 4, 0]}, memory=Memory.HYBRID),
    _family("lfm-2", "lfm2", _EVERY_SECOND, {"shortconv.l_cache": 3}, memory=Memory.HYBRID),
    _family("granite-hybrid", "granitehybrid", _MAMBA_2, _EVERY_SECOND, memory=Memory.HYBRID),
    _family("jamba", "jamba", _MAMBA, _EVERY_SECOND, memory=Memory.HYBRID),
    _family("falcon-h1", "falcon-h1", _MAMBA_2, memory=Memory.HYBRID),
    _family("mamba", "mamba", _MAMBA, _NO_ATTENTION, memory=Memory.RECURRENT),
    _family("mamba-2", "mamba2", _MAMBA_2, _NO_ATTENTION, memory=Memory.RECURRENT),
    _family("rwkv-7", "rwkv7", _RWKV, memory=Memory.RECURRENT),
)

ALONE = (
    _family("arwkv-7", "arwkv7", _RWKV, {"token_shift_count": 1}, memory=Memory.RECURRENT),
    _family("plamo-2", "plamo2", _MAMBA, _EVERY_SECOND, {"ssm.group_count": 0}, memory=Memory.HYBRID),
)
"""Families of which llama.cpp computes several sequences wrongly."""

_FIRST = {"gemma-3", "qwen-3-next"}
"""A family with windows, and one whose states are recurrent in some layers. The tests of the engine have attention."""


def quick_for_some(values: Iterable[T], family: Callable[[T], str] = str) -> list[ParameterSet]:
    """Return values as parameters of tests, of which `pytest` runs only those of two families."""
    return [pytest.param(value, marks=() if family(value) in _FIRST else thorough) for value in values]
