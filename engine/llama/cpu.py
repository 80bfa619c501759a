"""What llama.cpp should make of the CPU at hand."""

import os
import platform
from pathlib import Path

_CPU_INFO = Path("/proc/cpuinfo")


def physical_cores() -> int:
    """The cores this process may use. Two threads on one core take turns at the same arithmetic and only cost time."""
    if not hasattr(os, "sched_getaffinity"):  # not Linux
        return os.cpu_count() or 1
    return len({_siblings(cpu) for cpu in os.sched_getaffinity(0)})


def gains_by_repacking() -> bool:
    """Whether llama.cpp's kernels for rearranged weights are the faster ones, as far as can be said without measuring.

    They are on ARM, and with AMX. On x86 with AVX-512, measured with Q4_K, they made prompts and passes of 10 rows or
    more slower by 10 to 40 %, and passes of few rows faster by 7 to 20 %.
    """
    if platform.machine().lower() in ("aarch64", "arm64"):
        return True
    return _CPU_INFO.exists() and " amx_int8" in _CPU_INFO.read_text()


def _siblings(cpu: int) -> str:
    """The processors that share a core with this one, itself included, as the kernel lists them."""
    try:
        return Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text()
    except FileNotFoundError:
        return str(cpu)
