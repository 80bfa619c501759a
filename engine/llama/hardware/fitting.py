"""Fits a model into the memory of the GPUs, before it is loaded."""

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from engine.config import EngineConfig
from engine.errors import LoadError
from engine.gguf.cells import CellBytes, layer_cells
from engine.gguf.header import read_header
from engine.llama.hardware.fit import LayerBytes, fit
from engine.llama.hardware.overrides import EXPERTS, experts_on_host
from engine.llama.hardware.placement import Placement, is_input, layer_of, layers_of
from engine.llama.memory.plan import SMALLEST_CONTEXT

logger = logging.getLogger(__name__)

_MARGIN = 2**30
"""Bytes of each device that stay free, for compute buffers."""
_EXPERTS = re.compile(EXPERTS)


def fitted(config: EngineConfig, placement: Placement, tensors: Mapping[str, int]) -> Placement:
    """Return a placement that the devices hold.

    It is unchanged if they hold all layers, or if the operator has placed any of them. The KV cache is counted with
    the operator's context, or else with the smallest one: the default context takes what is left.

    Args:
        config: the operator's choices.
        placement: these choices as a placement.
        tensors: bytes of each tensor of the model by its name.

    Raises:
        LoadError: the header of the model's file cannot be read.
    """
    if not placement.devices or not _may_fit(config, placement):
        return placement
    layers = layer_bytes(tensors, _cells(config), config.slots, config.context or SMALLEST_CONTEXT)
    found = fit(layers, output_bytes(tensors), [device.free for device in placement.devices], _MARGIN)
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


def _cells(config: EngineConfig) -> list[CellBytes]:
    """Return the memory of sequences in each layer of a model.

    Raises:
        LoadError: the header of its file cannot be read.
    """
    try:
        return layer_cells(read_header(Path(config.model)), config.kv_type_k, config.kv_type_v)
    except (OSError, ValueError) as error:
        raise LoadError(f"{config.model} cannot be fitted: {error}") from error


def layer_bytes(tensors: Mapping[str, int], cells: Sequence[CellBytes], slots: int, context: int) -> list[LayerBytes]:
    """Return the memory of each layer: its weights, and its part of the KV cache.

    Args:
        tensors: bytes of each tensor by its name.
        cells: memory of sequences in each layer.
        slots: number of slots.
        context: tokens of each slot.
    """
    dense, experts = [0] * (count := layers_of(tensors)), [0] * count
    for name, size in tensors.items():
        if (layer := layer_of(name)) is not None:
            (experts if _EXPERTS.search(name) else dense)[layer] += size
    for layer, one in enumerate(cells[:count]):
        dense[layer] += slots * (context * one.token + one.sequence)
    return list(map(LayerBytes, dense, experts))


def output_bytes(tensors: Mapping[str, int]) -> int:
    """Return the bytes of the output. A model without one uses a copy of its input tensor."""
    own = sum(size for name, size in tensors.items() if layer_of(name) is None and not is_input(name))
    return own if "output.weight" in tensors else own + tensors.get("token_embd.weight", 0)
