"""Processors that this process may use: by its affinity, and by the CPU time that its control groups allow."""

import os
from collections.abc import Iterable
from pathlib import Path

from engine.control_groups import control_groups
from engine.errors import LoadError
from engine.hardware import Hardware

_NODES = Path("/sys/devices/system/node")


def check_processors(hardware: Hardware) -> None:
    """Check that this machine has the processors that an operator has chosen, and several nodes for a strategy.

    Raises:
        LoadError: it has not.
    """
    if hardware.cpus:
        _check_cpus(hardware.cpus)
    if hardware.numa is not None and len(list(_NODES.glob("node[0-9]*"))) < 2:  # noqa: PLR2004
        raise LoadError(f"--numa {hardware.numa} has no effect: this machine has a single NUMA node")


def _check_cpus(cpus: Iterable[int]) -> None:
    if not hasattr(os, "sched_setaffinity"):
        raise LoadError("--cpus is not possible on this operating system")
    allowed = os.sched_getaffinity(0)
    if refused := sorted(set(cpus) - allowed):
        raise LoadError(f"--cpus: this process may not use {_listed(refused)}, only {_listed(sorted(allowed))}")


def _listed(cpus: Iterable[int]) -> str:
    """Return a list of CPUs in the kernel's form."""
    ranges: list[list[int]] = []
    for cpu in cpus:
        if ranges and cpu == ranges[-1][1] + 1:
            ranges[-1][1] = cpu
        else:
            ranges.append([cpu, cpu])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


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
