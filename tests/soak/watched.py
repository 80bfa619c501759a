"""The program under soak: `llama-gateway` itself, which also counts its tasks and objects at SIGUSR1.

The watchdog of its engine waits for a shorter time, so that a stopped engine is found within a round.
"""

import asyncio
import gc
import json
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from functools import partial

import trio

import gateway.__main__ as program
from engine import Supervision, open_engine

MARK = "soak: "
"""Beginning of a line with counts on standard error."""
STALL_TIMEOUT = 4.0
"""Seconds without a finished step after which the engine is killed."""


def tasks() -> Iterator[str]:
    """Return the names of all tasks of the running event loop."""
    try:
        waiting = [trio.lowlevel.current_root_task()]
    except RuntimeError:
        yield from (str(getattr(task.get_coro(), "__qualname__", "")) for task in asyncio.all_tasks())
        return
    while waiting:
        task = waiting.pop()
        assert task is not None
        waiting += (child for nursery in task.child_nurseries for child in nursery.child_tasks)
        yield task.name


def report(*_: object) -> None:
    gc.collect()
    counts = {"tasks": Counter(tasks()), "objects": len(gc.get_objects())}
    sys.stderr.write(f"{MARK}{json.dumps(counts)}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, report)
    program.open_engine = partial(open_engine, limits=Supervision(stall_timeout=STALL_TIMEOUT))  # type: ignore[attr-defined]
    sys.exit(program.main())
