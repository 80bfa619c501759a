"""The kernel's limit on memory that a process may keep from being swapped."""

import resource
from pathlib import Path

from engine.errors import LoadError

_STATUS = Path("/proc/self/status")
_MAY_LOCK = 1 << 14  # CAP_IPC_LOCK


def check_lockable(size: int) -> None:
    """Check that this process may lock memory. llama.cpp would only log a warning, and serve without.

    Args:
        size: bytes to lock.

    Raises:
        LoadError: the limit is lower.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if limit == resource.RLIM_INFINITY or size <= limit or _capabilities() & _MAY_LOCK:
        return
    raise LoadError(
        f"--load-mode mlock needs {size / 2**20:.0f} MiB of locked memory, and this process may lock "
        f"{limit / 2**20:.0f}: raise RLIMIT_MEMLOCK (ulimit -l, LimitMEMLOCK=) or choose another mode"
    )


def _capabilities() -> int:
    """Return the effective capabilities of this process as bits; 0 where the kernel is not Linux."""
    try:
        lines = _STATUS.read_text().splitlines()
    except FileNotFoundError:
        return 0
    return next((int(line.split()[1], 16) for line in lines if line.startswith("CapEff:")), 0)
