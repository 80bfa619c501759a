"""How many tokens a slot holds: as many as the model was trained on, or fewer where memory is short."""

import logging
from dataclasses import dataclass

from engine.config import EngineConfig
from engine.errors import LoadError

logger = logging.getLogger(__name__)

CELL_BLOCK = 256
"""Tokens. llama.cpp rounds the cells of a slot up to a multiple of this."""
SMALLEST_CONTEXT = 512
_HOST_SHARE = 0.25
"""llama.cpp takes the whole cache at its start, used or not, and others use the machine too."""
_GPU_SHARE = 0.8
"""The rest is for compute buffers."""
_F16 = 2


@dataclass(frozen=True, slots=True)
class KVShape:
    """What one token costs in the KV cache: layers, K/V heads a layer, and the sizes of a key and of a value."""

    layers: int
    heads: int
    key: int
    value: int

    @property
    def bytes_per_token(self) -> int:
        """Bytes of one token's cells, as f16."""
        return self.layers * self.heads * (self.key + self.value) * _F16


@dataclass(frozen=True, slots=True)
class Store:
    """A memory that holds part of the KV cache: bytes it can spare, and its share of each token's cells (0 to 1)."""

    spare: float
    share: float


def choose_context(config: EngineConfig, trained: int, shape: KVShape, stores: list[Store]) -> int:
    """Tokens per slot. What the operator asks for is taken as it is; else what the model knows and memory allows.

    Raises `LoadError` if memory allows too little to be of use.
    """
    if config.context is not None:
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


def _fitting_tokens(cost: int, stores: list[Store]) -> int:
    """Whole blocks of tokens per slot, when one token in every slot costs `cost` bytes."""
    tokens = min(max(store.spare, 0) / (store.share * max(cost, 1)) for store in stores if store.share > 0)
    return int(tokens) // CELL_BLOCK * CELL_BLOCK


def kv_stores(config: EngineConfig, layers: int, weights: int, available: int, gpu_free: int | None) -> list[Store]:
    """Where the KV cache will lie: with its layer, on the host or on the GPUs.

    `available` is the host's memory before the `weights` were loaded: mapped from their file they still count as
    available, but must stay, so they are subtracted. `gpu_free` is the GPUs' memory after that; None without a GPU.
    All in bytes.
    """
    offloaded = 0.0
    if gpu_free is not None:
        offloaded = 1.0 if config.gpu_layers < 0 else min(config.gpu_layers / layers, 1.0)
    host = Store((available - weights * (1 - offloaded)) * _HOST_SHARE, 1 - offloaded)
    return [host, Store((gpu_free or 0) * _GPU_SHARE, offloaded)]
