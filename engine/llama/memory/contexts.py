"""The contexts that a model can have: the memory that each takes, and the longest one that fits."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple, TypeAlias

from engine.config import EngineConfig
from engine.errors import LoadError
from engine.llama.attention import Attention
from engine.llama.memory.buffers import HOST, Buffers
from engine.llama.memory.parameters import CELL_BLOCK, all_cells, context_params
from engine.llama.memory.simulation import SimulatedContext, Simulation

_HOST_SHARE = 0.25
"""llama.cpp allocates the whole cache at its start, and other programs use the machine too."""
_GPU_SHARE = 0.8
"""The rest is for memory that kernels take as they run."""
_MOST_CELLS = 2**31 - 1  # llama.cpp counts them in 32 bits
_LONG, _LONGER = 2**17, 2**18
"""Tokens. Between these a sequence takes more memory only by its tokens, because sliding windows are shorter. There are
so many that hundredths of a MiB make a tenth of a byte of each."""


@dataclass(frozen=True, slots=True)
class Room:
    """Memory of a device."""

    free: float
    """Free bytes."""
    part: float
    """Share of them that a default may take, 0 to 1."""
    shares_host: bool = False
    """True if it is a part of the host's memory."""

    @property
    def spare(self) -> float:
        """Bytes that a default may take."""
        return self.free * self.part


def find_rooms(
    free: int, weights: Mapping[str, int], gpus: Mapping[str, int], integrated: Collection[str] = ()
) -> dict[str, Room]:
    """Return the memory of each device.

    Args:
        free: bytes of host memory that were free before the weights were loaded. Mapped from their file they still
            count as free, so they are subtracted.
        weights: bytes of the weights by device.
        gpus: free bytes of each GPU after the weights were loaded.
        integrated: GPUs whose memory is the host's.
    """
    rooms = {gpu: Room(bytes_, _GPU_SHARE, gpu in integrated) for gpu, bytes_ in gpus.items()}
    taken = sum(weights.get(device, 0) for device in (HOST, *integrated))
    return {HOST: Room(free - taken, _HOST_SHARE), **rooms}


class ContextShape(NamedTuple):
    """The properties of a context that are chosen by the memory that they take."""

    slots: int
    """Number of slots."""
    context: int
    """Tokens of each slot."""
    full_windows: bool = False
    """True if sliding-window layers keep the cells of all tokens."""
    snapshots: int = 0
    """Number of earlier recurrent states that each slot keeps."""


Simulate: TypeAlias = Callable[[ContextShape], SimulatedContext]
"""Returns the properties of a context of this shape."""


def simulator(config: EngineConfig, attention: Attention, simulation: Simulation) -> Simulate:
    """Return a function that simulates contexts as configured, each once. `backend_sampling` must be decided."""

    @cache
    def simulate(shape: ContextShape) -> SimulatedContext:
        slots, context, full_windows, snapshots = shape
        cells, own = all_cells(slots, context), replace(config, slots=slots)
        params = context_params(own, cells, attention, full_windows=full_windows, snapshots=snapshots)
        return simulation.simulate(params, sampled=bool(config.backend_sampling))

    return simulate


@dataclass(frozen=True, slots=True)
class Contexts:
    """Contexts that differ only in the tokens of a slot, and the memory that there is for them."""

    config: EngineConfig
    """The operator's choices."""
    simulate: Simulate
    """Simulates a context."""
    rooms: Mapping[str, Room]
    """The memory of each device."""
    full_windows: bool = True
    """As in `ContextShape`."""
    snapshots: int = 0
    """As in `ContextShape`."""

    @property
    def token_bytes(self) -> int:
        """Bytes of the cells of one token, in all layers that keep it."""
        shapes = (ContextShape(1, tokens, self.full_windows) for tokens in (_LONG, _LONGER))
        long, longer = (sum(self.simulate(shape).buffers.cells.values()) for shape in shapes)
        return round((longer - long) / (_LONGER - _LONG))

    @property
    def snapshot_bytes(self) -> Mapping[str, int] | None:
        """Bytes of one snapshot by device; None if llama.cpp cannot keep any for the model."""
        without, with_one = (self.simulate(ContextShape(1, CELL_BLOCK, snapshots=count)) for count in (0, 1))
        return Counter(with_one.buffers.cells) - Counter(without.buffers.cells) if with_one.snapshots else None

    def buffers(self, context: int) -> Buffers:
        """Return the buffers of the context with so many tokens in each slot."""
        return self.simulate(ContextShape(self.config.slots, context, self.full_windows, self.snapshots)).buffers

    def check_fits(self, context: int) -> None:
        """Check that memory holds a context.

        Raises:
            LoadError: it does not.
        """
        if self._cell_bytes(context) > self._free:
            raise self._short_of_memory(context, self._cell_bytes(context), self._free)
        if self._too_large(context):
            raise LoadError(
                f"{self.config.slots} x {context} tokens of context are more than the {_MOST_CELLS} that llama.cpp can "
                "count: choose fewer slots or a smaller context"
            )
        for device, needed in self.buffers(context).all.items():
            if needed > (free := self.rooms[device].free):
                raise self._short_of_memory(context, needed, free, f" on {device}")

    def spare_beside(self, context: int) -> dict[str, float]:
        """Return the bytes that defaults may take beside a context, by device; no device if it is too large."""
        needs = {} if self._too_large(context) else self.buffers(context).all
        return {device: self.rooms[device].spare - needed for device, needed in needs.items()}

    def headroom(self, context: int) -> float:
        """Return the bytes that defaults may take of the tightest memory beside a context; negative without room."""
        return min(self.spare_beside(context).values(), default=-1)

    def longest(self, most: int) -> int:
        """Return the tokens of the longest context that defaults allow: at most `most`, or whole blocks."""
        cells = sum(room.spare for room in self.rooms.values()) / max(self.token_bytes, 1)
        return _longest(self.headroom, int(min(max(cells / self.config.slots, 0), most)))

    @property
    def _free(self) -> float:
        return sum(room.free for room in self.rooms.values())

    def _cell_bytes(self, context: int) -> int:
        return all_cells(self.config.slots, context) * self.token_bytes

    def _too_large(self, context: int) -> bool:
        """Return whether a context has too many cells even to simulate it."""
        return all_cells(self.config.slots, context) > _MOST_CELLS or self._cell_bytes(context) > self._free

    def _short_of_memory(self, context: int, needed: float, free: float, where: str = "") -> LoadError:
        return LoadError(
            f"{self.config.slots} x {context} tokens of context need {needed / 2**30:.1f} GiB{where}, and there are "
            f"{max(free, 0) / 2**30:.1f}: choose fewer slots, a smaller context or smaller types of cells"
        )


def _longest(headroom: Callable[[int], float], most: int) -> int:
    """Return the most tokens, at most `most`, with which memory is left: all of them or whole blocks.

    The memory grows by about as much with each block, so that interpolation takes a few steps only. Where it does not,
    as where another device becomes the tightest, each second step is a bisection.
    """
    if most < 1:
        return 0
    if (at_high := headroom(most)) >= 0:
        return most
    if (at_low := headroom(min(CELL_BLOCK, most))) < 0:
        return 0
    low, high = 1, -(-most // CELL_BLOCK)
    share = at_low / (at_low - at_high)
    while (width := high - low) > 1:
        guess = min(max(low + int(width * share), low + 1), high - 1)
        left = headroom(guess * CELL_BLOCK)
        if left < 0:
            high, at_high = guess, left
        else:
            low, at_low = guess, left
        share = at_low / (at_low - at_high) if 2 * (high - low) <= width else 0.5
    return low * CELL_BLOCK
