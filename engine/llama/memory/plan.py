"""The context of a slot: as long as the model was trained on, or shorter where memory is short."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace

from engine.config import EngineConfig
from engine.core.drafts.speculation import LENGTHS
from engine.errors import LoadError
from engine.llama.memory.buffers import HOST, Buffers
from engine.llama.memory.contexts import Contexts, Room
from engine.llama.memory.parameters import all_cells

logger = logging.getLogger(__name__)

SMALLEST_CONTEXT = 512
_STORE_SHARE = 0.1
_LARGEST_STORE = 8 * 2**30
"""Bytes. Memory is only used as prefixes are saved, but requests rarely return after so many others."""
_SNAPSHOT_SHARE = 0.1
"""Share of the memory for defaults that snapshots of recurrent states may take beside the shortest context."""
_SMALL_SNAPSHOT, _FEW_SNAPSHOTS = 2**20, 3
"""Bytes, and number. Steps without draft tokens take no longer with snapshots of 80 KB (LFM2), and with those of 19 MB
(Qwen3.5) 3 to 5 % longer for three of them and 6 to 8 % for seven. Three draft tokens bring most of the gain."""


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """The memory of a context, before it is allocated."""

    context: int
    """Tokens of the longest sequence."""
    cells: int
    """Number of cells of all slots."""
    token_bytes: int
    """Bytes of the cells of one token, in all layers that keep it."""
    full_token_bytes: int
    """The same if sliding-window layers keep the cells of all tokens, as in an embedder."""
    full_windows: bool
    """True if sliding-window layers keep the cells of all tokens, so that the last ones can be dropped."""
    snapshots: int
    """Number of earlier recurrent states that each slot keeps: one before each of the last tokens."""
    buffers: Buffers
    """The buffers."""
    prefix_store: int
    """Bytes of host memory for saved prefixes."""


def plan_memory(contexts: Contexts, trained: int, *, windowed: bool = False, recurrent: bool = False) -> MemoryPlan:
    """Choose the tokens of a slot by the memory that llama.cpp takes for them.

    Args:
        contexts: contexts with full windows and without snapshots.
        trained: the training context of the model.
        windowed: whether the model has sliding windows. It keeps the cells of all tokens if each slot has its own, and
            if defaults may take the memory for the whole context.
        recurrent: whether the model has a recurrent state. Slots keep as many snapshots as draft tokens need if
            llama.cpp can for the model, and if they take little of the memory.

    Raises:
        LoadError: memory does not hold the operator's choice, or too few tokens to be useful; or llama.cpp refuses the
            types of the cells.
    """
    config, full_token_bytes = contexts.config, contexts.token_bytes
    # In a unified cache, llama.cpp writes over the cells behind the windows of other sequences, also in full ones.
    if windowed and (config.kv_unified or contexts.headroom(config.context or trained) < 0):
        contexts = replace(contexts, full_windows=False)
    if recurrent and config.speculation is not False and not config.kv_unified:
        spare = contexts.spare_beside(config.context or min(trained, SMALLEST_CONTEXT))
        contexts = replace(contexts, snapshots=choose_snapshots(config, contexts.snapshot_bytes, spare))
    context = choose_context(contexts, trained)
    buffers, cells = contexts.buffers(context), all_cells(config.slots, context)
    for device, needed in buffers.all.items():
        logger.info("the context takes %.1f MiB on %s", needed / 2**20, device)
    return MemoryPlan(
        context=max(context, min(cells, trained)) if config.kv_unified else context,
        cells=cells,
        token_bytes=contexts.token_bytes,
        full_token_bytes=full_token_bytes,
        full_windows=contexts.full_windows,
        snapshots=contexts.snapshots,
        buffers=buffers,
        prefix_store=choose_prefix_store(config, buffers, contexts.rooms),
    )


def choose_context(contexts: Contexts, trained: int) -> int:
    """Return the tokens of a slot: the operator's choice, else as many as the model and the memory allow.

    A process that replaces another has no shorter context, if it fits at all: its prompts may be those of the other.

    Raises:
        LoadError: memory does not hold the operator's choice, or too few tokens to be useful.
    """
    config = contexts.config
    if config.context is not None:
        contexts.check_fits(config.context)
        if config.context > trained:
            logger.warning(
                "the context of %d tokens is longer than the %d the model was trained on", config.context, trained
            )
        return config.context
    fitting = contexts.longest(trained)
    if fitting < (earlier := min(config.earlier_context or 0, trained)):
        try:
            contexts.check_fits(earlier)
        except LoadError as error:
            logger.warning("the context becomes shorter: %s", error.message)
        else:
            return earlier
    if fitting >= trained:
        return trained
    if fitting < min(SMALLEST_CONTEXT, trained):
        raise LoadError(
            f"memory allows {fitting} tokens per slot with --slots {config.slots}, which is too few: "
            "choose fewer slots, a smaller model, or the context yourself"
        )
    logger.info("memory allows %d tokens per slot; the model was trained on %d", fitting, trained)
    return fitting


def choose_snapshots(config: EngineConfig, snapshot: Mapping[str, int] | None, spare: Mapping[str, float]) -> int:
    """Return the number of snapshots of each slot: those of the longest draft that take little of the spare memory.

    Args:
        config: the operator's choices. Large snapshots are few unless speculation is on.
        snapshot: bytes of one by device; None if there can be none.
        spare: bytes by device that defaults may take beside the shortest context.
    """
    if snapshot is None:
        return 0
    most = min(
        (_SNAPSHOT_SHARE * spare.get(device, 0) / (config.slots * each) for device, each in snapshot.items() if each),
        default=LENGTHS[-1],
    )
    if not config.speculation and sum(snapshot.values()) > _SMALL_SNAPSHOT:
        most = min(most, _FEW_SNAPSHOTS)
    return max((length for length in LENGTHS if length <= most), default=0)


def choose_prefix_store(config: EngineConfig, buffers: Buffers, rooms: Mapping[str, Room]) -> int:
    """Return the bytes of host memory for saved prefixes.

    They are the operator's choice, else a modest share of the memory that the weights and the context leave.
    """
    if config.prefix_store is not None:
        return config.prefix_store
    taken = sum(size for device, size in buffers.all.items() if device == HOST or rooms[device].shares_host)
    free = rooms[HOST].free - taken
    return int(min(max(free, 0) * _STORE_SHARE, _LARGEST_STORE))


def cells_per_weight_pass(weights: int, token_bytes: int) -> int:
    """Return the number of cells that move in the time of one weight pass over `weights` bytes of host memory.

    A weight pass reads the weights once. A move reads and writes the cells twice: out of the cache and into it.
    """
    return weights // (4 * max(token_bytes, 1))
