"""Devices of llama.cpp, and the free memory of the host and of the GPUs."""

import ctypes
import os
import resource
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.host_memory import available_host_memory
from engine.llama.ggml_functions import declare, libggml

_CPU, _GPU, _INTEGRATED_GPU = range(3)  # enum ggml_backend_dev_type, ggml-backend.h


class _Properties(ctypes.Structure):
    """`struct ggml_backend_dev_props`, ggml-backend.h."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("description", ctypes.c_char_p),
        ("memory_free", ctypes.c_size_t),
        ("memory_total", ctypes.c_size_t),
        ("type", ctypes.c_int),
        ("device_id", ctypes.c_char_p),
        ("capabilities", ctypes.c_bool * 5),
    )


declare("ggml_backend_dev_count", ctypes.c_size_t)
declare("ggml_backend_dev_get", ctypes.c_void_p, ctypes.c_size_t)
declare("ggml_backend_dev_by_type", ctypes.c_void_p, ctypes.c_int)
declare("ggml_backend_dev_type", ctypes.c_int, ctypes.c_void_p)
declare("ggml_backend_dev_name", ctypes.c_char_p, ctypes.c_void_p)
declare("ggml_backend_dev_description", ctypes.c_char_p, ctypes.c_void_p)
declare("ggml_backend_dev_get_props", None, ctypes.c_void_p, ctypes.POINTER(_Properties))
declare("ggml_backend_dev_backend_reg", ctypes.c_void_p, ctypes.c_void_p)
declare("ggml_backend_reg_get_proc_address", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)
declare("ggml_backend_dev_memory", None, ctypes.c_void_p, *[ctypes.POINTER(ctypes.c_size_t)] * 2)
declare("ggml_backend_dev_buffer_type", ctypes.c_void_p, ctypes.c_void_p)
declare("ggml_backend_buft_name", ctypes.c_char_p, ctypes.c_void_p)


@dataclass(frozen=True, slots=True)
class Device:
    """A device of llama.cpp."""

    handle: int
    """The C object, which lives as long as the process."""

    @property
    def kind(self) -> int:
        """llama.cpp's number of its type."""
        return int(libggml.ggml_backend_dev_type(self.handle))

    @property
    def offloads(self) -> bool:
        """True if llama.cpp can offload layers to it."""
        return self.kind in (_GPU, _INTEGRATED_GPU)

    @property
    def integrated(self) -> bool:
        """True if its memory is the host's."""
        return self.kind == _INTEGRATED_GPU

    @property
    def aborts(self) -> bool:
        """True if it can end a running step. Of llama.cpp's backends, only the CPU's and Metal's can."""
        return bool(libggml.ggml_backend_reg_get_proc_address(self.backend, b"ggml_backend_set_abort_callback"))

    @property
    def backend(self) -> int:
        """llama.cpp's backend that offers the device. The C object lives as long as the process."""
        return int(libggml.ggml_backend_dev_backend_reg(self.handle))

    @property
    def name(self) -> str:
        """llama.cpp's name, such as `CUDA0`."""
        return _text(libggml.ggml_backend_dev_name(self.handle))

    @property
    def description(self) -> str:
        """The maker's name."""
        return _text(libggml.ggml_backend_dev_description(self.handle))

    @property
    def hardware_id(self) -> str | None:
        """Address of the hardware, which two backends may offer as two devices; None if it is not known."""
        properties = _Properties()
        libggml.ggml_backend_dev_get_props(self.handle, ctypes.byref(properties))
        return None if properties.device_id is None else _text(properties.device_id)

    @property
    def free(self) -> int:
        """Free bytes."""
        return _device_memory(self.handle)[0]

    @property
    def memory(self) -> int:
        """Bytes in total."""
        return _device_memory(self.handle)[1]


def all_devices() -> list[Device]:
    """Return the devices of this build of llama.cpp on this machine."""
    return [Device(libggml.ggml_backend_dev_get(at)) for at in range(libggml.ggml_backend_dev_count())]


def gpus() -> list[Device]:
    """Return the devices that llama.cpp offloads to by default."""
    return default_devices(all_devices())


def default_devices(available: Sequence[Device]) -> list[Device]:
    """Return those of some devices that llama.cpp offloads to by default.

    They are discrete GPUs, each once though two backends have it, or else the integrated ones of the first backend:
    others may have the same ones.
    """
    discrete: dict[str, Device] = {}
    for device in available:
        if device.kind == _GPU:
            discrete.setdefault(device.hardware_id or device.name, device)
    integrated = [device for device in available if device.integrated]
    return list(discrete.values()) or [device for device in integrated if device.backend == integrated[0].backend]


def additional_memory(available: Sequence[Device]) -> int:
    """Return the free bytes that the default ones of some devices have beside the host's memory."""
    return sum(device.free for device in default_devices(available) if not device.integrated)


def buffer_types() -> dict[str, int]:
    """Return the types of buffers that tensors can be placed in, one for each device, by name."""
    handles = (libggml.ggml_backend_dev_buffer_type(device.handle) for device in all_devices())
    return {_text(libggml.ggml_backend_buft_name(handle)): handle for handle in handles if handle}


def available_memory() -> int:
    """Return the bytes that this process may still use, by the kernel's estimate and its control group's limit."""
    available = available_host_memory()
    return _device_memory(libggml.ggml_backend_dev_by_type(_CPU))[1] if available is None else available


def mapped_memory() -> int:
    """Return the resident bytes of mapped files, which count as available; 0 where the system does not have it."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except FileNotFoundError:
        return 0
    sizes = {name: value for name, _, value in (line.partition(":") for line in lines)}
    mapped, locked = (1024 * int(sizes.get(name, "0 kB").split()[0]) for name in ("RssFile", "VmLck"))
    return max(0, mapped - locked)  # locked pages do not count as available


def resident_memory() -> int:
    """Return the resident bytes of this process, with the pages of mapped files."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except FileNotFoundError:  # not Linux: the most that it ever had
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return pages * os.sysconf("SC_PAGESIZE")


def gpu_memory() -> int | None:
    """Return the free bytes of all GPUs that llama.cpp offloads to; None without a GPU."""
    found = gpus()
    return sum(device.free for device in found) if found else None


def _device_memory(device: int) -> tuple[int, int]:
    """Return the free and the total bytes of a device: those of the host if it does not report any, as in llama.cpp."""
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    libggml.ggml_backend_dev_memory(device, ctypes.byref(free), ctypes.byref(total))
    if not total.value:
        return available_memory(), _device_memory(libggml.ggml_backend_dev_by_type(_CPU))[1]
    return free.value, total.value


def _text(name: bytes) -> str:
    return name.decode(errors="replace")
