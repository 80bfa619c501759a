"""llama.cpp's parameters for loading a model where a placement says."""

import ctypes
from collections.abc import Mapping

import llama_cpp

from engine.hardware import Hardware, LoadMode, SplitMode
from engine.llama.devices import buffer_types
from engine.llama.hardware.placement import Placement

_SPLIT_MODES: dict[SplitMode, int] = {
    "none": llama_cpp.LLAMA_SPLIT_MODE_NONE,
    "layer": llama_cpp.LLAMA_SPLIT_MODE_LAYER,
    "row": llama_cpp.LLAMA_SPLIT_MODE_ROW,
    "tensor": llama_cpp.LLAMA_SPLIT_MODE_TENSOR,
}
_LOAD_MODES: dict[LoadMode, int] = {
    "auto": llama_cpp.LLAMA_LOAD_MODE_AUTO,
    "none": llama_cpp.LLAMA_LOAD_MODE_NONE,
    "mmap": llama_cpp.LLAMA_LOAD_MODE_MMAP,
    "mlock": llama_cpp.LLAMA_LOAD_MODE_MLOCK,
    "mmap+mlock": llama_cpp.LLAMA_LOAD_MODE_MMAP_MLOCK,
    "direct-io": llama_cpp.LLAMA_LOAD_MODE_DIRECT_IO,
}


class TensorOverride(ctypes.Structure):
    """`struct llama_model_tensor_buft_override`, llama.h."""

    _fields_ = (("pattern", ctypes.c_char_p), ("buffer_type", ctypes.c_void_p))


class ModelParams:
    """Owns the parameters of a load and the C arrays that they point to. It must live until the model is loaded."""

    def __init__(self, hardware: Hardware, placement: Placement) -> None:
        """Make the parameters; those that do not concern the hardware are llama.cpp's defaults."""
        self.c = llama_cpp.llama_model_default_params()
        self.c.n_gpu_layers = placement.gpu_layers
        self.c.split_mode = _SPLIT_MODES[hardware.split_mode]
        self.c.load_mode = _LOAD_MODES[hardware.load_mode]
        self._overrides = override_array(placement, buffer_types())
        if placement.overrides:
            self.c.tensor_buft_overrides = ctypes.cast(self._overrides, ctypes.c_void_p)
        self._split = (ctypes.c_float * llama_cpp.llama_max_devices())(*placement.tensor_split)
        if placement.tensor_split:
            self.c.tensor_split = self._split
        self._devices = device_array(placement)
        if hardware.devices is not None or hardware.split_mode == "none":
            self.c.devices = ctypes.cast(self._devices, ctypes.c_void_p)


def override_array(placement: Placement, buffers: Mapping[str, int]) -> ctypes.Array[TensorOverride]:
    """Return the overrides of a placement as llama.cpp reads them, with an empty one at the end."""
    overrides = [TensorOverride(pattern.encode(), buffers[buffer]) for pattern, buffer in placement.overrides]
    return (TensorOverride * (len(overrides) + 1))(*overrides)


def device_array(placement: Placement) -> ctypes.Array[ctypes.c_void_p]:
    """Return the devices as llama.cpp reads them, with NULL at the end."""
    return (ctypes.c_void_p * (len(placement.devices) + 1))(*(device.handle for device in placement.devices))
