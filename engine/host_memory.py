"""Host memory that this process may still use, by files of the Linux kernel."""

from pathlib import Path

from engine.control_groups import control_groups

_MEMORY = Path("/proc/meminfo")
_FILES = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))
"""Names of the limit and of what is used, of version 2 of the control groups and of version 1."""
_FILE_CACHE = ("active_file", "inactive_file")


def available_host_memory() -> int | None:
    """Return the bytes that are available by the kernel's estimate and in the control groups; None if unknown."""
    try:
        lines = _MEMORY.read_text().splitlines()
    except FileNotFoundError:
        return None
    available = next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)
    left = _memory_left()
    return available if available is None or left is None else min(available, left)


def _memory_left() -> int | None:
    """Return the bytes up to the limit of the process's control groups that is reached first; None without a limit.

    Cached files count as left: the kernel drops them, and most of them may be the weights of this model.
    """
    rests = [_left(folder, *files) for folder in control_groups("memory") for files in _FILES]
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
