"""Host memory that this process may still use, by files of the Linux kernel."""

from pathlib import Path

_MEMORY = Path("/proc/meminfo")
_MOUNT = Path("/sys/fs/cgroup")
_FILE_CACHE = ("active_file", "inactive_file")


def available_host_memory(memory: Path = _MEMORY, mount: Path = _MOUNT) -> int | None:
    """Return the bytes that are available by the kernel's estimate and in the control group; None without an estimate.

    Args:
        memory: file with the estimate.
        mount: as for `memory_left`.
    """
    try:
        lines = memory.read_text().splitlines()
    except FileNotFoundError:
        return None
    available = next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)
    left = memory_left(mount)
    return available if available is None or left is None else min(available, left)


def memory_left(mount: Path = _MOUNT) -> int | None:
    """Return the bytes up to the limit of the control group; None without a limit.

    Cached files count as left: the kernel drops them, and most of them may be the weights of this model.

    Args:
        mount: folder with the files of version 2 of the control groups, or with a folder of those of version 1.
    """
    left = _left(mount, "memory.max", "memory.current")
    return _left(mount / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes") if left is None else left


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
