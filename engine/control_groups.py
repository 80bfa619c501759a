"""Control groups of this process, by files of the Linux kernel."""

from collections.abc import Iterator
from pathlib import Path

MOUNT = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")


def control_groups(controller: str, mount: Path = MOUNT, membership: Path = MEMBERSHIP) -> Iterator[Path]:
    """Yield the folders of the process's control group and of those around it, of both versions.

    Args:
        controller: `cpu` or `memory`.
        mount: folder with the control groups of version 2, or with those of each controller of version 1.
        membership: file with the path of the process's control group in each hierarchy. Inside a container it may be
            the path outside, so that only the root exists.
    """
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _hierarchy, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        root = mount / controller if controllers else mount
        group = root / path.lstrip("/")
        yield from (folder for folder in (group, *group.parents) if folder.is_relative_to(root))
