"""A process that may start no further thread."""

from threading import Thread
from typing import NoReturn


def refuse_thread(_thread: Thread) -> NoReturn:
    """Stand for `Thread.start` at a limit of processes (`pids.max`, `RLIMIT_NPROC`)."""
    raise RuntimeError("can't start new thread")


async def refuse_in_thread(*_arguments: object, **_options: object) -> NoReturn:
    """Stand for `anyio.to_thread.run_sync`, or for `anyio.open_process`, at such a limit."""
    raise RuntimeError("can't start new thread")
