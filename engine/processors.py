"""Processors that this process may use: by its affinity, and by the CPU time that its control groups allow."""

import os
from pathlib import Path

from engine.control_groups import control_groups


def usable_processors() -> int:
    """Return the number of threads of this process that can run at once: by its affinity, and by its quota."""
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, int(min(processors, cpu_quota() or processors)))


def cpu_quota() -> float | None:
    """Return the smallest quota of the process's control groups, in cores; None without a quota."""
    quotas = map(_quota, control_groups("cpu"))
    return min((quota for quota in quotas if quota is not None), default=None)


def _quota(folder: Path) -> float | None:
    """Return the quota of one control group of either version; None without one."""
    try:
        if (limits := folder / "cpu.max").exists():
            quota, period = limits.read_text().split()
        else:
            quota, period = ((folder / f"cpu.cfs_{name}_us").read_text().strip() for name in ("quota", "period"))
        return None if quota in {"max", "-1"} else int(quota) / int(period)
    except (OSError, ValueError):
        return None
