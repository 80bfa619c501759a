"""Control groups of this process, by files of the Linux kernel."""

from collections.abc import Iterator
from pathlib import Path

_MOUNT = Path("/sys/fs/cgroup")
"""Folder with the control groups of version 2, or with those of each controller of version 1."""
_MEMBERSHIP = Path("/proc/self/cgroup")
"""File with the path of the process's control group in each hierarchy. Inside a container it may be the path outside,
so that only the root exists."""


def control_groups(controller: str) -> Iterator[Path]:
    """Yield the folders of the control group of the process for `cpu` or `memory`, and of those around it."""
    try:
        lines = _MEMBERSHIP.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _hierarchy, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        root = _MOUNT / controller if controllers else _MOUNT
        group = root / path.lstrip("/")
        yield from (folder for folder in (group, *group.parents) if folder.is_relative_to(root))
