"""The buffers that llama.cpp allocates, as its log has them."""

import re
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass

HOST = "CPU"
"""llama.cpp's name of the device whose memory is the host's."""
_MIB = 2**20
_LAYER = re.compile(r"layer +\d+: dev = (\S+)")
_CELLS = re.compile(r": size = +([\d.]+) MiB \(")
_STATE = re.compile(r": +(\S+) DSV4 .* state buffer size = +([\d.]+) MiB")
_COMPUTE = re.compile(r": +(\S+) +(?:output|compute) buffer size = +([\d.]+) MiB")
_WEIGHTS = re.compile(r": +(\S+) +model buffer size = +([\d.]+) MiB")


@dataclass(frozen=True, slots=True)
class Buffers:
    """Bytes of the buffers of a context by device.

    llama.cpp logs hundredths of a MiB, so that each of its buffers is exact to 5 KiB here.
    """

    cells: dict[str, int]
    """Bytes of the KV cache, and of recurrent states."""
    compute: dict[str, int]
    """Bytes of the largest step, and of its outputs."""

    @property
    def all(self) -> dict[str, int]:
        """Bytes of both."""
        return Counter(self.cells) + Counter(self.compute)


def read_buffers(lines: Iterable[str], gpus: Collection[str]) -> Buffers:
    """Return the buffers of a context.

    Layers of one cache may be on several devices. They count as equally large there, as they are in all but a few
    architectures.

    Args:
        lines: llama.cpp's log of the context's creation, all levels.
        gpus: names of the GPUs; any other memory is the host's.
    """
    cells: Counter[str] = Counter()
    compute: Counter[str] = Counter()
    layers: Counter[str] = Counter()
    for line in lines:
        if found := _LAYER.search(line):
            layers[_device(found[1], gpus)] += 1
        elif found := _CELLS.search(line):
            for device, count in layers.items():
                cells[device] += _bytes(found[1]) * count // layers.total()
            layers.clear()
        elif found := _STATE.search(line):
            cells[_device(found[1], gpus)] += _bytes(found[2])
            layers.clear()
        elif found := _COMPUTE.search(line):
            compute[_device(found[1], gpus)] += _bytes(found[2])
    return Buffers(dict(cells), dict(compute))


def read_weights(lines: Iterable[str], gpus: Collection[str]) -> dict[str, int]:
    """Return the bytes of the weights by device. `lines` is llama.cpp's log of the load."""
    weights: Counter[str] = Counter()
    for line in lines:
        if found := _WEIGHTS.search(line):
            weights[_device(found[1], gpus)] += _bytes(found[2])
    return dict(weights)


def _device(name: str, gpus: Collection[str]) -> str:
    return name if name in gpus else HOST


def _bytes(mebibytes: str) -> int:
    return round(float(mebibytes) * _MIB)
