"""How many threads a pass through the model should have."""

import os
from pathlib import Path


def physical_cores() -> int:
    """The cores this process may use. Two threads on one core take turns at the same arithmetic and only cost time."""
    if not hasattr(os, "sched_getaffinity"):  # not Linux
        return os.cpu_count() or 1
    return len({_siblings(cpu) for cpu in os.sched_getaffinity(0)})


def _siblings(cpu: int) -> str:
    """The processors that share a core with this one, itself included, as the kernel lists them."""
    try:
        return Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text()
    except FileNotFoundError:
        return str(cpu)
