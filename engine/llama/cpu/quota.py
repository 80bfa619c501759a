"""The CPU time that control groups allow to this process, by files of the Linux kernel."""

from collections.abc import Iterator
from pathlib import Path

_MOUNT = Path("/sys/fs/cgroup")
_MEMBERSHIP = Path("/proc/self/cgroup")


def cpu_quota(mount: Path = _MOUNT, membership: Path = _MEMBERSHIP) -> float | None:
    """Return the smallest quota of the process's control groups, in cores; None without a quota.

    Args:
        mount: folder with the control groups of version 2, or with those of each controller of version 1.
        membership: file with the path of the process's control group in each hierarchy. Inside a container it may be
            the path outside, so that only the root is found.
    """
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return None
    return min((quota for line in lines for quota in _quotas(mount, *line.split(":", 2))), default=None)


def _quotas(mount: Path, _hierarchy: str, controllers: str, path: str) -> Iterator[float]:
    """Yield the quotas of a control group and of those around it."""
    if "cpu" in controllers.split(","):
        mount /= "cpu"
    elif controllers:
        return
    group = mount / path.lstrip("/")
    for folder in (group, *group.parents):
        if folder.is_relative_to(mount) and (quota := _quota(folder)) is not None:
            yield quota


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
