"""The buffers that llama.cpp allocates, as its log has them."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

HOST = "CPU"
"""llama.cpp's name of the device whose memory is the host's."""
_TENSOR_MODE, _ROW_MODE = "Meta(", "_Split"
"""Beginning and end of the names of buffers that GPUs divide among them, by the split mode."""
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


def read_buffers(lines: Iterable[str], gpus: Mapping[str, float]) -> Buffers:
    """Return the buffers of a context.

    Layers of one cache may be on several devices. They count as equally large there, as they are in all but a few
    architectures.

    Args:
        lines: llama.cpp's log of the context's creation, all levels.
        gpus: share of each GPU in tensors that they divide, by name; any other memory is the host's.
    """
    cells: Counter[str] = Counter()
    compute: Counter[str] = Counter()
    layers: Counter[str] = Counter()
    for line in lines:
        if found := _LAYER.search(line):
            layers[found[1]] += 1
        elif found := _CELLS.search(line):
            for name, count in layers.items():
                cells.update(_divided(name, _bytes(found[1]) * count // layers.total(), gpus))
            layers.clear()
        elif found := _STATE.search(line):
            cells.update(_buffer(found[1], _bytes(found[2]), gpus))
            layers.clear()
        elif found := _COMPUTE.search(line):  # GPUs that divide tensors have one each
            compute.update(dict.fromkeys(_shares(found[1], gpus), _bytes(found[2])))
    return Buffers(dict(cells), dict(compute))


def read_weights(lines: Iterable[str], gpus: Mapping[str, float]) -> dict[str, int]:
    """Return the bytes of the weights by device. `lines` is llama.cpp's log of the load, `gpus` as above."""
    weights: Counter[str] = Counter()
    for line in lines:
        if found := _WEIGHTS.search(line):
            weights.update(_buffer(found[1], _bytes(found[2]), gpus))
    return dict(weights)


def _buffer(name: str, logged: int, gpus: Mapping[str, float]) -> dict[str, int]:
    """Return the bytes of a buffer by device. With the split mode tensor, the largest part of it is logged."""
    return _divided(name, int(logged / max(gpus.values())) if name.startswith(_TENSOR_MODE) else logged, gpus)


def _divided(name: str, whole: int, gpus: Mapping[str, float]) -> dict[str, int]:
    return {device: int(whole * share) for device, share in _shares(name, gpus).items()}


def _shares(name: str, gpus: Mapping[str, float]) -> Mapping[str, float]:
    """Return the share of each device in a buffer of this name."""
    if name in gpus:
        return {name: 1.0}
    return gpus if name.startswith(_TENSOR_MODE) or name.endswith(_ROW_MODE) else {HOST: 1.0}


def _bytes(mebibytes: str) -> int:
    return round(float(mebibytes) * _MIB)
