"""Fits a model into the memory of the GPUs, before it is loaded."""

import logging
import re
from collections.abc import Mapping
from dataclasses import replace

from engine.config import EngineConfig
from engine.llama.hardware.fit import LayerBytes, fit
from engine.llama.hardware.model_file import ModelFile
from engine.llama.hardware.overrides import EXPERTS, experts_on_host
from engine.llama.hardware.placement import Placement, is_input, layer_of, layers_of
from engine.llama.memory.plan import SMALLEST_CONTEXT

logger = logging.getLogger(__name__)

_MARGIN = 2**30
"""Bytes of each device that stay free, for compute buffers."""
_F16, _F32 = 2, 4
_EXPERTS = re.compile(EXPERTS)


def fitted(config: EngineConfig, placement: Placement, file: ModelFile) -> Placement:
    """Return a placement that the devices hold.

    It is unchanged if they hold all layers, or if the operator has placed any of them. The KV cache is counted with
    the operator's context, or else with the smallest one: the default context takes what is left.

    Args:
        config: the operator's choices.
        placement: these choices as a placement.
        file: the model's file.
    """
    if not placement.devices or not _may_fit(config, placement):
        return placement
    layers = layer_bytes(file, config.slots, config.context or SMALLEST_CONTEXT)
    found = fit(layers, output_bytes(file.tensors), [device.free for device in placement.devices], _MARGIN)
    if found is None:
        return placement
    logger.info(
        "the model is placed by the free memory of the GPUs: --fit",
        extra={"gpu_layers": found.gpu_layers, "of": len(layers) + 1, "n_cpu_moe": found.cpu_moe},
    )
    split = found.tensor_split if len(placement.devices) > 1 and found.gpu_layers else ()
    return replace(placement, gpu_layers=found.gpu_layers, tensor_split=split, overrides=experts_on_host(found.cpu_moe))


def _may_fit(config: EngineConfig, placement: Placement) -> bool:
    """Return whether the operator leaves the placement of the layers to the engine."""
    hardware = config.hardware
    placed = config.gpu_layers >= 0 or placement.tensor_split or placement.overrides
    return hardware.fit and not placed and hardware.split_mode in ("none", "layer")


def layer_bytes(file: ModelFile, slots: int, context: int) -> list[LayerBytes]:
    """Return the memory of each layer: its weights, and its part of the KV cache.

    Args:
        file: the model's file.
        slots: number of slots.
        context: tokens of each slot.
    """
    dense, experts = [0] * (count := layers_of(file.tensors)), [0] * count
    for name, size in file.tensors.items():
        if (layer := layer_of(name)) is not None:
            (experts if _EXPERTS.search(name) else dense)[layer] += size
    caches = (slots * (context * _cell_bytes(file, layer) + _state_bytes(file)) for layer in range(count))
    return [LayerBytes(size + cache, more) for size, cache, more in zip(dense, caches, experts, strict=True)]


def _cell_bytes(file: ModelFile, layer: int) -> int:
    """Return the bytes of one token's cell in a layer, as f16."""
    heads = file.number("attention.head_count", layer)
    if not heads or (layer + 1) % file.number("full_attention_interval", default=1):
        return 0
    kv_heads = file.number("attention.head_count_kv", layer, default=heads)
    even = file.number("embedding_length") // heads
    keys, values = (file.number(f"attention.{name}") or even for name in ("key_length", "value_length"))
    indexer = file.number("attention.indexer.key_length")  # of sparse attention, with one head
    if indexer and not file.number("attention.key_length_mla"):
        indexer += values
    return (kv_heads * (keys + values) + indexer) * _F16


def _state_bytes(file: ModelFile) -> int:
    """Return the bytes of one sequence's recurrent state in a layer, as f32; 0 for a model without one.

    Layers of a hybrid model that only attend are counted, too: too much is safe.
    """
    inner, state = file.number("ssm.inner_size"), file.number("ssm.state_size")
    shifted = max(file.number("ssm.conv_kernel") - 1, 0) * (inner + 2 * file.number("ssm.group_count") * state)
    rwkv = file.number("embedding_length") * (file.number("wkv.head_size") + file.number("token_shift_count"))
    return (inner * state + shifted + (rwkv if "wkv.head_size" in file.numbers else 0)) * _F32


def output_bytes(tensors: Mapping[str, int]) -> int:
    """Return the bytes of the output. A model without one uses a copy of its input tensor."""
    own = sum(size for name, size in tensors.items() if layer_of(name) is None and not is_input(name))
    return own if "output.weight" in tensors else own + tensors.get("token_embd.weight", 0)
