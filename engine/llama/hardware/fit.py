"""The placement of a model that the GPUs do not hold.

The rule: if all layers fit as llama.cpp would place them, nothing changes. Else the experts of the first N layers stay
in host memory, with the smallest N at which all layers fit: a token needs few of the experts, and all of the rest. If
all layers do not fit even without experts, as many of the last layers as fit are offloaded, without experts.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

_STEP = 2**24
"""Bytes. Devices are compared as exactly as this."""


@dataclass(frozen=True, slots=True)
class LayerBytes:
    """Memory of one layer."""

    dense: int
    """Weights that each token needs, and the layer's part of the KV cache."""
    experts: int = 0
    """Weights of the experts."""


@dataclass(frozen=True, slots=True)
class Fit:
    """A placement, in llama.cpp's terms."""

    gpu_layers: int
    """Last layers that are offloaded; the output counts as one."""
    tensor_split: tuple[int, ...]
    """Offloaded layers of each device."""
    cpu_moe: int
    """First layers whose experts stay in host memory."""


def fit(layers: Sequence[LayerBytes], output: int, free: Sequence[int], margin: int) -> Fit | None:
    """Return the placement of a model, or None if llama.cpp's own holds all layers.

    Args:
        layers: memory of each layer.
        output: bytes of the output, which follows the last layer.
        free: free bytes of each device, in llama.cpp's order.
        margin: bytes of each device that stay free, for compute buffers.
    """
    rooms = [max(size - margin, 0) for size in free]
    if _fits_by_default(_costs(layers, output, 0), free, rooms):
        return None
    most = max((at + 1 for at, layer in enumerate(layers) if layer.experts), default=0)
    for kept in range(most + 1):
        costs = _costs(layers, output, kept)
        if sum(_filled(costs, rooms)) == len(costs):
            return Fit(len(costs), _spread(costs, rooms), kept)
    counts = _filled(_costs(layers, output, most), rooms)
    return Fit(sum(counts), counts, most)


def _costs(layers: Sequence[LayerBytes], output: int, kept: int) -> list[int]:
    """Return the bytes of each layer, and of the output, on a device, without the experts of the first layers."""
    return [layer.dense + (layer.experts if at >= kept else 0) for at, layer in enumerate(layers)] + [output]


def _fits_by_default(costs: Sequence[int], free: Sequence[int], rooms: Sequence[int]) -> bool:
    """Return whether all layers fit as llama.cpp splits them: by number, in proportion to the devices' free memory."""
    if not sum(free):
        return False
    ends = [end / sum(free) for end in accumulate(free)]
    used = [0] * len(free)
    for at, cost in enumerate(costs):
        used[min(bisect_right(ends, at / len(costs)), len(free) - 1)] += cost
    return all(bytes_ <= room for bytes_, room in zip(used, rooms, strict=True))


def _filled(costs: Sequence[int], rooms: Sequence[int]) -> tuple[int, ...]:
    """Return how many of the last layers each device holds, if the last device is filled first.

    The layers of a device follow each other, and those of the next device follow them.
    """
    counts = [0] * len(rooms)
    rest = len(costs)
    for device in reversed(range(len(rooms))):
        room = rooms[device]
        while rest and costs[rest - 1] <= room:
            rest -= 1
            room -= costs[rest]
            counts[device] += 1
    return tuple(counts)


def _spread(costs: Sequence[int], rooms: Sequence[int]) -> tuple[int, ...]:
    """Return how many layers each device holds, so that the fullest one keeps as much room as possible."""
    low, high = 0, max(rooms) + 1
    while high - low > _STEP:
        middle = (low + high) // 2
        if sum(_filled(costs, [room - middle for room in rooms])) == len(costs):
            low = middle
        else:
            high = middle
    return _filled(costs, [room - low for room in rooms])
