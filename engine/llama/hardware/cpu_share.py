"""The engine process's share of the CPUs: which of them it may use, and with which priority.

The kernel keeps both for each thread, and new threads inherit them from the thread that starts them.
"""

import os
from collections.abc import Callable
from pathlib import Path

from engine.errors import LoadError
from engine.hardware import Hardware, Priority
from engine.processors import check_processors

_NICE: dict[Priority, int] = {"low": 5, "normal": 0, "medium": -5, "high": -10, "realtime": -20}
"""Values of nice, as llama.cpp has them for its `--prio`."""
_THREADS = Path("/proc/self/task")


def take_cpu_share(hardware: Hardware) -> None:
    """Set the CPUs and the priority of all threads of this process.

    Raises:
        LoadError: the machine lacks what the operator has chosen, or the kernel does not allow it.
    """
    check_processors(hardware)
    if hardware.cpus:
        _for_each_thread(lambda thread: os.sched_setaffinity(thread, hardware.cpus))
    if hardware.priority != "normal":
        _use_priority(hardware.priority)


def _use_priority(priority: Priority) -> None:
    try:
        _for_each_thread(lambda thread: os.setpriority(os.PRIO_PROCESS, thread, _NICE[priority]))
    except PermissionError as error:
        raise LoadError(
            f"--engine-priority {priority} needs the privilege CAP_SYS_NICE, or a higher RLIMIT_NICE"
        ) from error


def _for_each_thread(change: Callable[[int], None]) -> None:
    """Call a function with the id of each thread that lives; with 0, this thread, where threads have no ids."""
    threads = [int(thread.name) for thread in _THREADS.iterdir()] if _THREADS.is_dir() else [0]
    for thread in threads:
        try:
            change(thread)
        except ProcessLookupError:  # it has ended
            continue
