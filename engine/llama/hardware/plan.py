"""The operator's choices of hardware, checked against this machine and the model's file before it is loaded."""

import logging
from dataclasses import dataclass
from pathlib import Path

from engine.config import EngineConfig
from engine.llama import devices
from engine.llama.hardware.fitting import fitted
from engine.llama.hardware.memory_lock import check_lockable
from engine.llama.hardware.model_file import read_tensors
from engine.llama.hardware.numa import use_numa
from engine.llama.hardware.overrides import check_buffers, overrides_of, warn_of_unused
from engine.llama.hardware.placement import Placement, choose_devices
from engine.llama.memory.buffers import HOST

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """Plan for loading a model."""

    placement: Placement
    """Where the weights go."""
    on_host: int
    """Bytes of the weights in host memory, if some of them are on devices."""

    def weights(self, size: int) -> dict[str, int]:
        """Return the estimated bytes of the weights by device, of a model with so many bytes of weights."""
        names, devices = self.placement.gpus, self.placement.devices
        if not devices:
            return {HOST: size}
        shares = self.placement.tensor_split or tuple(float(device.free) for device in devices)
        of_device = dict.fromkeys(names, 0.0) | dict(zip(names, shares, strict=False))  # there may be fewer shares
        offloaded, whole = size - self.on_host, sum(shares) or 1.0
        return {HOST: self.on_host} | {name: int(offloaded * share / whole) for name, share in of_device.items()}


def plan_load(config: EngineConfig) -> LoadPlan:
    """Return how to load a model, and set the process's NUMA strategy.

    Raises:
        LoadError: llama.cpp would refuse or ignore a choice.
    """
    hardware = config.hardware
    if hardware.numa is not None:
        use_numa(hardware.numa)
    chosen = choose_devices(hardware, devices.all_devices(), devices.gpus())
    if config.gpu_layers > 0 and not chosen and hardware.devices is None:
        logger.warning("--gpu-layers has no effect: this build of llama.cpp sees no GPU")
    overrides = overrides_of(hardware)
    check_buffers(overrides, devices.buffer_types())
    placement = Placement(config.gpu_layers, hardware.tensor_split, overrides, chosen)
    locks = hardware.load_mode in ("mlock", "mmap+mlock")
    if not (chosen or overrides or locks):
        return LoadPlan(placement, 0)
    tensors = read_tensors(Path(config.model))
    warn_of_unused(hardware.override_tensor, tensors)
    placement = fitted(config, placement, tensors)
    on_host = placement.host_weights(tensors)
    if locks:
        check_lockable(on_host)
    return LoadPlan(placement, on_host)
