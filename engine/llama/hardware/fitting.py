"""Fits a model into the memory of the GPUs, before it is loaded."""

import logging
import os
import re
from collections.abc import Mapping
from dataclasses import replace

import llama_cpp

from engine.config import EngineConfig
from engine.llama import metadata
from engine.llama.hardware.fit import LayerBytes, fit
from engine.llama.hardware.overrides import EXPERTS, experts_on_host
from engine.llama.hardware.placement import Placement, is_input, layer_of, layers_of
from engine.llama.memory import SMALLEST_CONTEXT

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
        tensors: bytes of each tensor by its name.
    """
    if not placement.devices or not _may_fit(config, placement):
        return placement
    layers = layer_bytes(tensors, _cell_bytes(config) * config.slots * (config.context or SMALLEST_CONTEXT))
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


def layer_bytes(tensors: Mapping[str, int], kv: int) -> list[LayerBytes]:
    """Return the memory of each layer.

    Args:
        tensors: bytes of each tensor by its name.
        kv: bytes of the KV cache, of which each layer has the same part.
    """
    dense, experts = [0] * (count := layers_of(tensors)), [0] * count
    for name, size in tensors.items():
        if (layer := layer_of(name)) is not None:
            (experts if _EXPERTS.search(name) else dense)[layer] += size
    return [LayerBytes(size + kv // count, more) for size, more in zip(dense, experts, strict=True)]


def output_bytes(tensors: Mapping[str, int]) -> int:
    """Return the bytes of the output. A model without one uses a copy of its input tensor."""
    own = sum(size for name, size in tensors.items() if layer_of(name) is None and not is_input(name))
    return own if "output.weight" in tensors else own + tensors.get("token_embd.weight", 0)


def _cell_bytes(config: EngineConfig) -> int:
    """Return the bytes of one token's cells in all layers, by the metadata in the file; 0 if it cannot be read."""
    params = llama_cpp.llama_model_default_params()
    params.no_alloc, params.load_mode, params.n_gpu_layers = True, llama_cpp.LLAMA_LOAD_MODE_NONE, 0
    handle = llama_cpp.llama_model_load_from_file(os.fsencode(config.model), params)
    if not handle:  # loading it in earnest says why
        return 0
    try:
        return metadata.kv_shape(handle, llama_cpp.llama_model_n_layer(handle)).bytes_per_token
    finally:
        llama_cpp.llama_model_free(handle)
