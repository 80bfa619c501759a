"""Properties of the CPU that llama.cpp should be configured for."""

import os
import platform
from contextlib import suppress
from pathlib import Path

from engine.processors import cpu_quota

_CPU_INFO = Path("/proc/cpuinfo")


def usable_cores() -> int:
    """Return the number of cores that this process may use: by its affinity, and by the quota of its control groups."""
    quota = cpu_quota()
    cores = _physical_cores()
    return cores if quota is None else max(1, min(cores, int(quota)))


def _physical_cores() -> int:
    """Return the number of cores by affinity. Two threads on one core slow each other down."""
    if not hasattr(os, "sched_getaffinity"):  # not Linux
        return os.cpu_count() or 1
    return len({_siblings(cpu) for cpu in os.sched_getaffinity(0)})


def gains_by_repacking() -> bool:
    """Return whether llama.cpp's kernels for rearranged weights are expected to be faster.

    They are on ARM, and with AMX. On x86 with AVX-512, measured with Q4_K, they made prompts slower by 10 to 40 %, and
    steps of up to 8 rows faster by 7 to 55 %; steps of more rows were slower on one CPU, and as fast on another.
    """
    if platform.machine().lower() in ("aarch64", "arm64"):
        return True
    return "amx_int8" in cpu_info().get("flags", "").split()


def cpu_info() -> dict[str, str]:
    """Return the kernel's properties of the first processor."""
    with suppress(OSError):
        first = _CPU_INFO.read_text().split("\n\n", 1)[0]
        lines = (line.partition(":") for line in first.splitlines())
        return {key.strip(): value.strip() for key, _, value in lines}
    return {}


def _siblings(cpu: int) -> str:
    """Return the kernel's list of the processors that share a core with this one, itself included."""
    try:
        return Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text()
    except FileNotFoundError:
        return str(cpu)
