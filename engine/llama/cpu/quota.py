"""The CPU time that control groups allow to this process, by files of the Linux kernel."""

from pathlib import Path

from engine.control_groups import control_groups


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
