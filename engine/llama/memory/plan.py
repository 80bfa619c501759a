"""The context of a slot: as long as the model was trained on, or shorter where memory is short."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import TypeAlias

from engine.config import EngineConfig
from engine.core.drafts.speculation import LENGTHS
from engine.errors import LoadError
from engine.llama.attention import Attention
from engine.llama.memory.buffers import HOST, Buffers
from engine.llama.memory.parameters import CELL_BLOCK, all_cells, context_params
from engine.llama.memory.simulation import Simulation

logger = logging.getLogger(__name__)

SMALLEST_CONTEXT = 512
_HOST_SHARE = 0.25
"""llama.cpp allocates the whole cache at its start, and other programs use the machine too."""
_GPU_SHARE = 0.8
"""The rest is for memory that kernels take as they run."""
_STORE_SHARE = 0.1
_LARGEST_STORE = 8 * 2**30
"""Bytes. Memory is only used as prefixes are saved, but requests rarely return after so many others."""
_MOST_CELLS = 2**31 - 1  # llama.cpp counts them in 32 bits
_SNAPSHOT_SHARE = 0.1
"""Share of the memory for defaults that snapshots of recurrent states may take beside the shortest context."""
_SMALL_SNAPSHOT, _FEW_SNAPSHOTS = 2**20, 3
"""Bytes, and number. Steps without draft tokens take no longer with snapshots of 80 KB (LFM2), and with those of 19 MB
(Qwen3.5) 3 to 5 % longer for three of them and 6 to 8 % for seven. Three draft tokens bring most of the gain."""
_LONG, _LONGER = 2**17, 2**18
"""Tokens. Between these a sequence takes more memory only by its tokens, because sliding windows are shorter. There are
so many that hundredths of a MiB make a tenth of a byte of each."""

Need: TypeAlias = Callable[[int], Buffers]
"""Returns the buffers of a context with so many tokens in each slot."""


@dataclass(frozen=True, slots=True)
class Room:
    """Memory of a device."""

    free: float
    """Free bytes."""
    part: float
    """Share of them that a default may take, 0 to 1."""


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """The memory of a context, before it is allocated."""

    context: int
    """Tokens of the longest sequence."""
    cells: int
    """Number of cells of all slots."""
    token_bytes: int
    """Bytes of the cells of one token, in all layers that keep it."""
    full_windows: bool
    """True if sliding-window layers keep the cells of all tokens, so that the last ones can be dropped."""
    snapshots: int
    """Number of earlier recurrent states that each slot keeps: one before each of the last tokens."""
    buffers: Buffers
    """The buffers."""
    prefix_store: int
    """Bytes of host memory for saved prefixes."""


def plan_memory(
    config: EngineConfig,
    attention: Attention,
    trained: int,
    simulation: Simulation,
    rooms: Mapping[str, Room],
    *,
    windowed: bool = False,
    recurrent: bool = False,
) -> MemoryPlan:
    """Choose the tokens of a slot by the memory that llama.cpp takes for them.

    Args:
        config: the operator's choices. `backend_sampling` must be decided.
        attention: the attention implementation.
        trained: the training context of the model.
        simulation: simulates the memory.
        rooms: the memory of each device.
        windowed: whether the model has sliding windows. It keeps the cells of all tokens if each slot has its own, and
            if defaults may take the memory for the whole context.
        recurrent: whether the model has a recurrent state. Slots keep as many snapshots as draft tokens need if
            llama.cpp can for the model, and if they take little of the memory.

    Raises:
        LoadError: memory does not hold the operator's choice, or too few tokens to be useful; or llama.cpp refuses the
            types of the cells.
    """
    wanted = config.context or trained
    full_windows = True
    each = _token_bytes(config, attention, simulation, full_windows=True)
    need = _need(config, attention, simulation, full_windows=True)
    # In a unified cache, llama.cpp writes over the cells behind the windows of other sequences, also in full ones.
    if windowed and (config.kv_unified or not fits_full_windows(config.slots, wanted, need, each, rooms)):
        full_windows = False
        each = _token_bytes(config, attention, simulation, full_windows=False)
        need = _need(config, attention, simulation, full_windows=False)
    snapshots = 0
    if recurrent and config.speculation is not False and not config.kv_unified:
        least = config.context or min(trained, SMALLEST_CONTEXT)
        spare = _spare_beside(config.slots, least, need, each, rooms)
        snapshots = choose_snapshots(config, _snapshot_bytes(config, attention, simulation), spare)
        need = _need(config, attention, simulation, full_windows=full_windows, snapshots=snapshots)
    context = choose_context(config, trained, need, each, rooms)
    buffers, cells = need(context), all_cells(config.slots, context)
    for device, needed in buffers.all.items():
        logger.info("the context takes %.1f MiB on %s", needed / 2**20, device)
    longest = max(context, min(cells, trained)) if config.kv_unified else context
    store = choose_prefix_store(config, buffers, rooms[HOST])
    return MemoryPlan(longest, cells, each, full_windows, snapshots, buffers, store)


def _need(
    config: EngineConfig, attention: Attention, simulation: Simulation, *, full_windows: bool, snapshots: int = 0
) -> Need:
    """Return the need of contexts. Each is simulated once."""

    def need(context: int) -> Buffers:
        cells = all_cells(config.slots, context)
        params = context_params(config, cells, attention, full_windows=full_windows, snapshots=snapshots)
        return simulation.simulate(params, sampled=bool(config.backend_sampling)).buffers

    return cache(need)


def _token_bytes(config: EngineConfig, attention: Attention, simulation: Simulation, *, full_windows: bool) -> int:
    """Return the bytes of one token's cells."""
    need = _need(replace(config, slots=1), attention, simulation, full_windows=full_windows)
    long, longer = (sum(need(tokens).cells.values()) for tokens in (_LONG, _LONGER))
    return round((longer - long) / (_LONGER - _LONG))


def fits_full_windows(slots: int, context: int, need: Need, token_bytes: int, rooms: Mapping[str, Room]) -> bool:
    """Return whether defaults may take the memory for the cells of all tokens in sliding-window layers."""
    return min(_spare_beside(slots, context, need, token_bytes, rooms).values(), default=-1) >= 0


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


def _snapshot_bytes(config: EngineConfig, attention: Attention, simulation: Simulation) -> Mapping[str, int] | None:
    """Return the bytes of one snapshot by device; None if llama.cpp cannot keep any for the model."""
    alone = replace(config, slots=1)
    without, with_one = (
        simulation.simulate(context_params(alone, CELL_BLOCK, attention, full_windows=False, snapshots=count))
        for count in (0, 1)
    )
    if not with_one.snapshots:
        return None
    before, after = without.buffers.cells, with_one.buffers.cells
    return {device: size - before.get(device, 0) for device, size in after.items()}


def _spare_beside(
    slots: int, context: int, need: Need, token_bytes: int, rooms: Mapping[str, Room]
) -> dict[str, float]:
    """Return the bytes that defaults may take beside a context, by device; nothing if it is too large to simulate."""
    cells, spare = all_cells(slots, context), {device: room.free * room.part for device, room in rooms.items()}
    if cells > _MOST_CELLS or cells * token_bytes > sum(spare.values()):
        return {}
    needed = need(context).all
    return {device: spare.get(device, 0) - needed.get(device, 0) for device in {*spare, *needed}}


def find_rooms(free: int, weights: Mapping[str, int], gpus: Mapping[str, int]) -> dict[str, Room]:
    """Return the memory of each device.

    Args:
        free: bytes of host memory that were free before the weights were loaded. Mapped from their file they still
            count as free, so they are subtracted.
        weights: bytes of the weights by device.
        gpus: free bytes of each GPU after the weights were loaded.
    """
    rooms = {gpu: Room(bytes_, _GPU_SHARE) for gpu, bytes_ in gpus.items()}
    return {HOST: Room(free - weights.get(HOST, 0), _HOST_SHARE), **rooms}


def cells_per_weight_pass(weights: int, token_bytes: int) -> int:
    """Return the number of cells that move in the time of one weight pass over `weights` bytes of host memory.

    A weight pass reads the weights once. A move reads and writes the cells twice: out of the cache and into it.
    """
    return weights // (4 * max(token_bytes, 1))


def choose_context(config: EngineConfig, trained: int, need: Need, token_bytes: int, rooms: Mapping[str, Room]) -> int:
    """Return the tokens of a slot: the operator's choice, else as many as the model and the memory allow.

    A process that replaces another has no shorter context, if it fits at all: its prompts may be those of the other.

    Raises:
        LoadError: memory does not hold the operator's choice, or too few tokens to be useful.
    """
    if config.context is not None:
        _check_fits(config.slots, config.context, need, token_bytes, rooms)
        if config.context > trained:
            logger.warning(
                "the context of %d tokens is longer than the %d the model was trained on", config.context, trained
            )
        return config.context
    spare = {device: room.free * room.part for device, room in rooms.items()}
    most = sum(spare.values()) / (max(token_bytes, 1) * config.slots)
    fitting = _longest(lambda context: _headroom(need(context), spare), int(min(max(most, 0), trained)))
    if fitting < (earlier := min(config.earlier_context or 0, trained)):
        try:
            _check_fits(config.slots, earlier, need, token_bytes, rooms)
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


def _headroom(buffers: Buffers, spare: Mapping[str, float]) -> float:
    """Return the bytes that are left of the tightest memory; negative if they are missing."""
    return min(spare.get(device, 0) - needed for device, needed in buffers.all.items())


def _longest(headroom: Callable[[int], float], most: int) -> int:
    """Return the most tokens, at most `most`, with which memory is left: all of them or whole blocks.

    The memory grows by about as much with each block, so that interpolation takes a few steps only.
    """
    if most < 1:
        return 0
    if (at_high := headroom(most)) >= 0:
        return most
    if (at_low := headroom(min(CELL_BLOCK, most))) < 0:
        return 0
    low, high = 1, -(-most // CELL_BLOCK)
    while high - low > 1:
        guess = low + int((high - low) * at_low / (at_low - at_high))
        guess = min(max(guess, low + 1), high - 1)
        left = headroom(guess * CELL_BLOCK)
        if left < 0:
            high, at_high = guess, left
        else:
            low, at_low = guess, left
    return low * CELL_BLOCK


def _check_fits(slots: int, context: int, need: Need, token_bytes: int, rooms: Mapping[str, Room]) -> None:
    cells = all_cells(slots, context)
    free = {device: room.free for device, room in rooms.items()}
    if cells > _MOST_CELLS or cells * token_bytes > sum(free.values()):  # too many even to simulate
        raise _short_of_memory(slots, context, cells * token_bytes, sum(free.values()), "")
    for device, needed in need(context).all.items():
        if needed > free.get(device, 0):
            raise _short_of_memory(slots, context, needed, free.get(device, 0), f" on {device}")


def _short_of_memory(slots: int, context: int, needed: float, free: float, where: str) -> LoadError:
    return LoadError(
        f"{slots} x {context} tokens of context need {needed / 2**30:.1f} GiB{where}, and there are "
        f"{max(free, 0) / 2**30:.1f}: choose fewer slots, a smaller context or smaller types of cells"
    )


def choose_prefix_store(config: EngineConfig, buffers: Buffers, host: Room) -> int:
    """Return the bytes of host memory for saved prefixes.

    They are the operator's choice, else a modest share of the memory that the weights and the context leave.
    """
    if config.prefix_store is not None:
        return config.prefix_store
    free = host.free - buffers.all.get(HOST, 0)
    return int(min(max(free, 0) * _STORE_SHARE, _LARGEST_STORE))
