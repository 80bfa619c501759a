"""The placement of a model's weights: devices, layers, and single tensors."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from engine.errors import LoadError
from engine.hardware import Hardware
from engine.llama.devices import Device
from engine.llama.hardware.overrides import HOST, Override, buffer_for

_LAYER = re.compile(r"blk\.(\d+)\.")
_INPUT = ("token_embd", "per_layer_token_embd", "position_embd", "token_types")
"""Beginnings of the names of the tensors that llama.cpp keeps in host memory."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the weights of a model are."""

    gpu_layers: int
    """Last layers that are offloaded; negative offloads all."""
    tensor_split: tuple[float, ...]
    """Share of each device; empty leaves it to llama.cpp."""
    overrides: tuple[Override, ...]
    """Tensors that are placed by their names."""
    devices: tuple[Device, ...]
    """Devices that layers are offloaded to."""

    @property
    def offloads(self) -> bool:
        """True if layers are offloaded, of which the output layer is always one."""
        return bool(self.devices) and self.gpu_layers != 0

    @property
    def offloads_to_cuda(self) -> bool:
        """True if layers are offloaded to a device of CUDA."""
        return self.offloads and any(device.name.startswith("CUDA") for device in self.devices)

    def offloads_all(self, layers: int) -> bool:
        """Return whether so many layers and the output layer are offloaded, and no tensor is placed by its name."""
        return bool(self.devices) and not self.overrides and not 0 <= self.gpu_layers <= layers

    @property
    def gpus(self) -> dict[str, float]:
        """Share of each device in tensors that they divide, by llama.cpp's name."""
        shares = self.tensor_split or (1.0,) * len(self.devices)
        divided = {device.name: share / sum(shares) for device, share in zip(self.devices, shares, strict=False)}
        return dict.fromkeys((device.name for device in self.devices), 0.0) | divided  # there may be fewer shares

    @property
    def aborts(self) -> bool:
        """True if a running step can be aborted on all devices."""
        return all(device.aborts for device in self.devices)

    def host_weights(self, tensors: Mapping[str, int]) -> int:
        """Return the bytes of the tensors in host memory.

        Args:
            tensors: bytes of each tensor by its name.
        """
        layers = layers_of(tensors)
        return sum(size for name, size in tensors.items() if self._on_host(name, layers))

    def _on_host(self, tensor: str, layers: int) -> bool:
        if not self.devices or is_input(tensor):
            return True
        if (buffer := buffer_for(tensor, self.overrides)) is not None:
            return buffer == HOST
        layer = layer_of(tensor)
        offloaded = layers + 1 if self.gpu_layers < 0 else self.gpu_layers
        return (layers if layer is None else layer) < layers + 1 - offloaded


def layers_of(tensors: Iterable[str]) -> int:
    """Return the number of layers of a model with these tensors."""
    return max((layer + 1 for name in tensors if (layer := layer_of(name)) is not None), default=0)


def layer_of(tensor: str) -> int | None:
    """Return the layer of a tensor, or None for one of the input or the output."""
    match = _LAYER.match(tensor)
    return int(match[1]) if match else None


def is_input(tensor: str) -> bool:
    """Return whether llama.cpp keeps a tensor in host memory, whatever is offloaded."""
    return tensor.startswith(_INPUT)


def choose_devices(hardware: Hardware, available: Sequence[Device], default: Sequence[Device]) -> tuple[Device, ...]:
    """Return the devices to offload to.

    Args:
        hardware: the operator's choice.
        available: all devices of this machine.
        default: those that llama.cpp chooses.

    Raises:
        LoadError: there is no such device, or too few for the choice.
    """
    chosen = tuple(default) if hardware.devices is None else _named(hardware.devices, available)
    if hardware.split_mode in ("row", "tensor") and not chosen:
        raise LoadError(f"--split-mode {hardware.split_mode} needs a GPU: {_listed(available)}")
    if len(hardware.tensor_split) > len(chosen):
        raise LoadError(
            f"--tensor-split has {len(hardware.tensor_split)} shares for {len(chosen)} devices: {_listed(available)}"
        )
    if hardware.main_gpu and hardware.main_gpu >= len(chosen):
        raise LoadError(f"--main-gpu {hardware.main_gpu}: there are {len(chosen)} GPUs: {_listed(available)}")
    return chosen[hardware.main_gpu :][:1] if hardware.split_mode == "none" else chosen


def _named(names: Sequence[str], available: Sequence[Device]) -> tuple[Device, ...]:
    by_name = {device.name: device for device in available if device.offloads}
    for name in names:
        if name not in by_name:
            raise LoadError(f"--device {name}: there is no such device to offload to: {_listed(available)}")
    return tuple(by_name[name] for name in names)


def _listed(available: Sequence[Device]) -> str:
    names = [f"{device.name} ({device.description})" for device in available if device.offloads]
    return f"llama.cpp has {', '.join(names)}" if names else "this build of llama.cpp sees no GPU"
