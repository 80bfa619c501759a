"""Resource use of a process, as the kernel reports it."""

import os
from pathlib import Path

import pytest

needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="this system has no /proc")

_USER_TICKS, _SYSTEM_TICKS = 11, 12  # proc_pid_stat(5), counted from the state, which follows the name
_RESIDENT_PAGES = 1


def cpu_ticks(pid: int) -> int:
    """Return the clock ticks of CPU time of a process; a second has `SC_CLK_TCK`."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[_USER_TICKS]) + int(fields[_SYSTEM_TICKS])


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process, in all its threads."""
    return cpu_ticks(pid) / os.sysconf("SC_CLK_TCK")


def resident_bytes(pid: int) -> int:
    """Return the memory that a process has in RAM."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[_RESIDENT_PAGES]) * os.sysconf("SC_PAGE_SIZE")


def reset_peak(pid: int) -> None:
    """Make `peak_bytes` begin again."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def peak_bytes(pid: int) -> int:
    """Return the largest memory that a process has had in RAM."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024
