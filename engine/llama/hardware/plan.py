"""The operator's choices of hardware, checked against this machine and the model's file before it is loaded."""

from dataclasses import dataclass, replace
from pathlib import Path

from engine.config import EngineConfig
from engine.llama import devices
from engine.llama.hardware.fitting import fitted
from engine.llama.hardware.memory_lock import check_lockable
from engine.llama.hardware.model_file import read_model_file
from engine.llama.hardware.numa import use_numa
from engine.llama.hardware.overrides import check_buffers, overrides_of, warn_of_unused
from engine.llama.hardware.placement import Placement, choose_devices


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """How a model is loaded."""

    placement: Placement
    """Where the weights go."""
    kept_on_host: int
    """Bytes of offloaded layers that stay in host memory, less those of other layers that do not."""


def plan_load(config: EngineConfig) -> LoadPlan:
    """Return how to load a model, and set the process's NUMA strategy.

    Raises:
        LoadError: llama.cpp would refuse or ignore a choice.
    """
    hardware = config.hardware
    if hardware.numa is not None:
        use_numa(hardware.numa)
    chosen = choose_devices(hardware, devices.all_devices(), devices.gpus())
    overrides = overrides_of(hardware)
    check_buffers(overrides, devices.buffer_types())
    placement = Placement(config.gpu_layers, hardware.tensor_split, overrides, chosen)
    locks = hardware.load_mode in ("mlock", "mmap+mlock")
    if not (chosen or overrides or locks):
        return LoadPlan(placement, 0)
    file = read_model_file(Path(config.model))
    warn_of_unused(hardware.override_tensor, file.tensors)
    placement = fitted(config, placement, file)
    on_host = placement.host_weights(file.tensors)
    if locks:
        check_lockable(on_host)
    return LoadPlan(placement, on_host - replace(placement, overrides=()).host_weights(file.tensors))
