"""Free memory of the host and of the GPUs, and the memory of this process."""

import ctypes
import os
import resource
from pathlib import Path

from llama_cpp._ggml import libggml  # the bindings do not wrap the device functions

_CPU, _GPU, _INTEGRATED_GPU = range(3)  # enum ggml_backend_dev_type, ggml-backend.h

libggml.ggml_backend_dev_count.restype = ctypes.c_size_t
libggml.ggml_backend_dev_get.argtypes = [ctypes.c_size_t]
libggml.ggml_backend_dev_get.restype = ctypes.c_void_p
libggml.ggml_backend_dev_by_type.argtypes = [ctypes.c_int]
libggml.ggml_backend_dev_by_type.restype = ctypes.c_void_p
libggml.ggml_backend_dev_type.argtypes = [ctypes.c_void_p]
libggml.ggml_backend_dev_type.restype = ctypes.c_int
libggml.ggml_backend_dev_memory.argtypes = [ctypes.c_void_p, *[ctypes.POINTER(ctypes.c_size_t)] * 2]
libggml.ggml_backend_dev_memory.restype = None


def available_memory() -> int:
    """Return the bytes that this process may still use, by the kernel's estimate and its control group's limit."""
    limit = _control_group_limit()
    available = _linux_available()
    if available is None:
        available = _device_memory(libggml.ggml_backend_dev_by_type(_CPU))[1]
    return available if limit is None else min(available, limit)


def _linux_available() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except FileNotFoundError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)


def _control_group_limit() -> int | None:
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
    except FileNotFoundError:
        return None
    return None if limit == "max" else int(limit)


def resident_memory() -> int:
    """Return the resident bytes of this process, with the pages of mapped files."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except FileNotFoundError:  # not Linux: the most that it ever had
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return pages * os.sysconf("SC_PAGESIZE")


def gpu_memory() -> int | None:
    """Return the free bytes of all GPUs that llama.cpp offloads to; None without a GPU."""
    gpus = _gpus()
    return sum(_device_memory(gpu)[0] for gpu in gpus) if gpus else None


def _gpus() -> list[int]:
    """Return the devices that llama.cpp offloads to: discrete GPUs, or else integrated ones."""
    devices = [libggml.ggml_backend_dev_get(at) for at in range(libggml.ggml_backend_dev_count())]
    kinds = {device: libggml.ggml_backend_dev_type(device) for device in devices}
    return [device for device in devices if kinds[device] == _GPU] or [
        device for device in devices if kinds[device] == _INTEGRATED_GPU
    ]


def _device_memory(device: int) -> tuple[int, int]:
    """Return the free and the total bytes of a device."""
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    libggml.ggml_backend_dev_memory(device, ctypes.byref(free), ctypes.byref(total))
    return free.value, total.value
