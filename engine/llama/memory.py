"""The context of a slot: as long as the model was trained on, or shorter where memory is short."""

import logging
from dataclasses import dataclass

from engine.config import EngineConfig
from engine.errors import LoadError

logger = logging.getLogger(__name__)

CELL_BLOCK = 256
"""Tokens. llama.cpp rounds the cells of a slot up to a multiple of this."""
SMALLEST_CONTEXT = 512
_HOST_SHARE = 0.25
"""llama.cpp allocates the whole cache at its start, and other programs use the machine too."""
_GPU_SHARE = 0.8
"""The rest is for compute buffers."""
_STORE_SHARE = 0.1
_LARGEST_STORE = 8 * 2**30
"""Bytes. Memory is only used as prefixes are saved, but requests rarely return after so many others."""
_F16 = 2
_MOST_CELLS = 2**31 - 1  # llama.cpp counts them in 32 bits


@dataclass(frozen=True, slots=True)
class KVShape:
    """The KV cache of one token."""

    layers: int
    """Number of layers."""
    heads: int
    """K/V heads a layer."""
    key: int
    """Numbers in a key of one head."""
    value: int
    """Numbers in a value of one head."""

    @property
    def bytes_per_token(self) -> int:
        """Bytes of one token's cells, as f16."""
        return self.layers * self.heads * (self.key + self.value) * _F16


def cells_per_weight_pass(weights: int, shape: KVShape) -> int:
    """Return the number of cells that move in the time of one weight pass over `weights` bytes.

    A weight pass reads the weights once. A move reads and writes the cells twice: out of the cache and into it.
    """
    return weights // (4 * max(shape.bytes_per_token, 1))


@dataclass(frozen=True, slots=True)
class Store:
    """A memory that holds part of the KV cache."""

    total: float
    """Free bytes."""
    part: float
    """Share of them that a default may take, 0 to 1."""
    share: float
    """Share of each token's cells in this memory, 0 to 1."""

    @property
    def spare(self) -> float:
        """Bytes that a default may take."""
        return max(self.total, 0) * self.part


def choose_context(config: EngineConfig, trained: int, shape: KVShape, stores: list[Store]) -> int:
    """Return the tokens of a slot: the operator's choice, else as many as the model and the memory allow.

    Raises:
        LoadError: memory does not hold the operator's choice, or too few tokens to be useful.
    """
    if config.context is not None:
        _check_fits(config.slots, config.context, shape, stores)
        if config.context > trained:
            logger.warning(
                "the context of %d tokens is longer than the %d the model was trained on", config.context, trained
            )
        return config.context
    fitting = _fitting_tokens(shape.bytes_per_token * config.slots, stores)
    if fitting >= trained:
        return trained
    if fitting < min(SMALLEST_CONTEXT, trained):
        raise LoadError(
            f"memory allows {fitting} tokens in each of {config.slots} slots, which is too few: "
            "choose fewer slots, a smaller model, or the context yourself"
        )
    logger.info("memory allows %d tokens per slot; the model was trained on %d", fitting, trained)
    return fitting


def fits_full_windows(slots: int, context: int, shape: KVShape, stores: list[Store]) -> bool:
    """Return whether defaults may take the memory for all cells of the layers with a sliding window, too."""
    needed = _all_cells(slots, context) * shape.bytes_per_token
    return all(needed * store.share <= store.spare for store in stores)


def _check_fits(slots: int, context: int, shape: KVShape, stores: list[Store]) -> None:
    cells = _all_cells(slots, context)
    needed = cells * shape.bytes_per_token
    room = min(store.total / store.share for store in stores if store.share > 0)
    if cells > _MOST_CELLS or needed > room:
        raise LoadError(
            f"{slots} slots of {context} tokens need {needed / 2**30:.1f} GiB for their cells, and there are "
            f"{max(room, 0) / 2**30:.1f}: choose fewer slots or a smaller context"
        )


def choose_prefix_store(config: EngineConfig, context: int, shape: KVShape, host: Store) -> int:
    """Return the bytes of host memory for saved prefixes.

    They are the operator's choice, else a modest share of the memory that weights and KV cache leave. `context` is the
    tokens of a slot.
    """
    if config.prefix_store is not None:
        return config.prefix_store
    free = host.total - _all_cells(config.slots, context) * shape.bytes_per_token * host.share
    return int(min(max(free, 0) * _STORE_SHARE, _LARGEST_STORE))


def _all_cells(slots: int, context: int) -> int:
    return slots * -(-context // CELL_BLOCK) * CELL_BLOCK


def _fitting_tokens(cost: int, stores: list[Store]) -> int:
    """Return whole blocks of tokens for each slot, if one token in every slot costs `cost` bytes."""
    tokens = min(store.spare / (store.share * max(cost, 1)) for store in stores if store.share > 0)
    return int(tokens) // CELL_BLOCK * CELL_BLOCK


def kv_stores(config: EngineConfig, layers: int, weights: int, available: int, gpu_free: int | None) -> list[Store]:
    """Return the memories that hold the KV cache. The cells of a layer are with its weights, on the host or a GPU.

    The weights are in the memory of the GPU already, unless only the metadata is loaded.

    Args:
        config: has the number of offloaded layers.
        layers: layers of the model.
        weights: bytes of the weights. Mapped from their file they count as available, so they are subtracted.
        available: bytes of host memory that were available before the weights were loaded.
        gpu_free: bytes of GPU memory that are free; unset without a GPU.
    """
    offloaded = 0.0
    if gpu_free is not None:
        offloaded = 1.0 if config.gpu_layers < 0 else min(config.gpu_layers / layers, 1.0)
    host = Store(available - weights * (1 - offloaded), _HOST_SHARE, 1 - offloaded)
    missing = weights * offloaded if config.metadata_only else 0.0
    return [host, Store((gpu_free or 0) - missing, _GPU_SHARE, offloaded)]
