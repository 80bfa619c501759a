"""Memory of a model before it is loaded, estimated from its file and its settings."""

import logging
from dataclasses import dataclass, replace
from pathlib import Path

from engine import EngineConfig
from engine.gguf.cells import CellBytes, cell_bytes
from engine.gguf.header import layers_of, number, read_header
from engine.gguf.split_file import bytes_of
from gateway.hub.reference import SCHEME, HubReference
from gateway.residency.memory import Memory

logger = logging.getLogger(__name__)

PROCESS = 96 * 2**20
"""Bytes of host memory of an engine process besides weights and KV cache: Python, llama.cpp, compute buffers."""
GPU_BUFFERS = 256 * 2**20
"""Bytes of GPU memory of compute buffers and of the driver."""
CACHE_SHARE = 4
"""A model whose context is left to the server may take this part of the budget for its KV cache."""
STORE_SHARE = 20
"""A model whose prefix store is left to the server may take this part of the budget for it."""
_LARGEST_STORE = 8 * 2**30
_BLOCK, _LEAST_CONTEXT = 256, 512


@dataclass(frozen=True, slots=True)
class Estimate:
    """Configuration of an engine that shares the memory with others, and the bytes that it takes."""

    config: EngineConfig
    """Configuration in which the context and the prefix store are decided."""
    need: Memory
    """Bytes that the engine takes."""


def estimate(config: EngineConfig, budget: Memory) -> Estimate:
    """Return the estimate for a model that shares a budget with others. Reads the header of its file.

    Each engine by itself would choose a context and a prefix store for all the memory that is free. So those that the
    operator leaves open are decided here, for a share of the budget. A model of the hub is estimated by its file on
    this machine. Without one it counts as a process with a prefix store.
    """
    store = min(budget.host // STORE_SHARE, _LARGEST_STORE) if config.prefix_store is None else config.prefix_store
    path = _file_of(config.model)
    if path is None:
        return Estimate(replace(config, prefix_store=store), Memory(host=store + PROCESS))
    shape = _shape_of(path, config)
    weights, offloaded = bytes_of(path), _offloaded(config, shape.layers, budget)
    each, context = shape.cells, config.context
    if context is None and each.token:
        share = (budget.gpu if offloaded else budget.host) // CACHE_SHARE
        context = _context(share // (each.token * config.slots), shape.trained)
    tokens = -(-(context or 0) // _BLOCK) * _BLOCK
    loaded = weights + config.slots * (tokens * each.token + each.sequence)
    on_gpu = int(loaded * offloaded)
    need = Memory(host=loaded - on_gpu + store + PROCESS, gpu=on_gpu + GPU_BUFFERS if offloaded else 0)
    return Estimate(replace(config, context=context, prefix_store=store), need)


@dataclass(frozen=True, slots=True)
class _Shape:
    """What the header of a file says of a model. All is 0 for a damaged one."""

    cells: CellBytes
    """Memory of sequences."""
    layers: int
    """Number of layers."""
    trained: int
    """Tokens of the context that it was trained with."""


def _shape_of(path: Path, config: EngineConfig) -> _Shape:
    try:
        header = read_header(path)
        cells = cell_bytes(header, config.kv_type_k, config.kv_type_v)
        return _Shape(cells, layers_of(header), number(header, "context_length"))
    except (OSError, ValueError) as error:
        logger.warning("the memory of %s is estimated by its size alone: %s", path, error)
        return _Shape(CellBytes(0, 0), 0, 0)


def _file_of(model: str) -> Path | None:
    """Return the file of a model; None if it is one of the hub that is not on this machine."""
    if not model.startswith(SCHEME):
        return Path(model)
    from gateway.hub.opening import hub_cache  # noqa: PLC0415 - it needs an extra

    return hub_cache().find(HubReference.parse(model))


def _context(fitting: int, trained: int) -> int:
    tokens = max(fitting // _BLOCK * _BLOCK, _LEAST_CONTEXT)
    return min(tokens, trained) if trained else tokens


def _offloaded(config: EngineConfig, layers: int, budget: Memory) -> float:
    """Return the share of the layers that are on a GPU, from 0 to 1."""
    if not budget.gpu or not config.gpu_layers:
        return 0.0
    return 1.0 if config.gpu_layers < 0 or not layers else min(config.gpu_layers / layers, 1.0)
