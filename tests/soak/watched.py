"""The program under soak: `llama-gateway` itself, which also counts its tasks and objects at SIGUSR1.

The watchdog of its engine waits for a shorter time, so that an engine is found within a round that is stopped, also
while it loads.
"""

import asyncio
import gc
import json
import signal
import sqlite3
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from unittest.mock import patch

import trio

import gateway.hub.engine
from engine import Supervision, open_engine
from gateway import program
from gateway.storage.sqlite import SQLiteDatabase

MARK = "soak: "
"""Beginning of a line with counts on standard error."""
STALL_TIMEOUT = 4.0
"""Seconds without a finished step after which the engine is killed."""
LOAD_TIMEOUT = 10.0
"""Seconds without progress in loading after which it is killed."""


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


class Disk:
    """The room of the store. SIGUSR2 takes all that is free, and gives it back."""

    full = False

    @classmethod
    def toggle(cls, *_: object) -> None:
        cls.full = not cls.full

    @classmethod
    def limited(cls, connect: Callable[[SQLiteDatabase], sqlite3.Connection]) -> Callable[..., sqlite3.Connection]:
        """Return `SQLiteDatabase._connect` with SQLite's own limit of pages: the file cannot grow while it is full."""

        def limited_connect(database: SQLiteDatabase) -> sqlite3.Connection:
            connection = connect(database)
            connection.execute(f"PRAGMA max_page_count = {1 if cls.full else 2**30}")
            return connection

        return limited_connect


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, report)
    signal.signal(signal.SIGUSR2, Disk.toggle)
    SQLiteDatabase._connect = Disk.limited(SQLiteDatabase._connect)  # type: ignore[method-assign]
    impatient = partial(open_engine, limits=Supervision(stall_timeout=STALL_TIMEOUT, load_timeout=LOAD_TIMEOUT))
    with patch.object(gateway.hub.engine, "open_engine", impatient):
        sys.exit(program.main(sys.argv[1:]))
