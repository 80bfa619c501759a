"""Host memory that this process may still use, by files of the Linux kernel."""

from pathlib import Path

from engine.control_groups import MEMBERSHIP, MOUNT, control_groups

_MEMORY = Path("/proc/meminfo")
_FILES = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))
"""Names of the limit and of what is used, of version 2 of the control groups and of version 1."""
_FILE_CACHE = ("active_file", "inactive_file")


def available_host_memory(memory: Path = _MEMORY, mount: Path = MOUNT, membership: Path = MEMBERSHIP) -> int | None:
    """Return the bytes that are available by the kernel's estimate and in the control groups; None without an estimate.

    Args:
        memory: file with the estimate.
        mount: as for `control_groups`.
        membership: as for `control_groups`.
    """
    try:
        lines = memory.read_text().splitlines()
    except FileNotFoundError:
        return None
    available = next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)
    left = memory_left(mount, membership)
    return available if available is None or left is None else min(available, left)


def memory_left(mount: Path = MOUNT, membership: Path = MEMBERSHIP) -> int | None:
    """Return the bytes up to the limit of the process's control groups that is reached first; None without a limit.

    Cached files count as left: the kernel drops them, and most of them may be the weights of this model. The arguments
    are those of `control_groups`.
    """
    groups = control_groups("memory", mount, membership)
    rests = [_left(folder, *files) for folder in groups for files in _FILES]
    return min((left for left in rests if left is not None), default=None)


def _left(folder: Path, limit: str, usage: str) -> int | None:
    try:
        most = (folder / limit).read_text().strip()
        used = int((folder / usage).read_text())
        counts = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
    except OSError:
        return None
    if most == "max":
        return None
    cached = sum(int(counts.get(f"total_{name}", counts.get(name, 0))) for name in _FILE_CACHE)
    return max(0, int(most) - used + cached)
