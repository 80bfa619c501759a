"""Threads that share out the rows of a step."""

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from itertools import chain, pairwise
from typing import Final, TypeVar

from engine.background import Background

T = TypeVar("T")

_LEAST: Final = 8
"""Rows of a part. They share each call of numpy, and parts wait for each other between two calls."""


class RowThreads:
    """Does the same work for parts of the rows of a step at the same time. All methods are for one thread.

    It is for work that leaves the interpreter's lock to others most of the time, as numpy's does.
    """

    def __init__(self, count: int) -> None:
        """Start the threads. The caller of `map` is one of the `count`."""
        with ExitStack() as running:
            self._others = [running.enter_context(Background(f"rows {at}")) for at in range(1, count)]
            self._running = running.pop_all()

    def close(self) -> None:
        """End the threads."""
        self._running.close()

    def map(self, work: Callable[[slice], list[T]], rows: int) -> list[T]:
        """Return the results of all rows in order. Waits for the other threads.

        Args:
            work: Returns the results of some rows. It is called in any of the threads.
            rows: Number of rows.

        Raises:
            BaseException: The work raised it.
        """
        parts = min(1 + len(self._others), rows // _LEAST)
        if parts <= 1:
            return work(slice(0, rows))
        results: list[list[T]] = [[] for _ in range(parts)]

        def do(part: int, of: slice) -> None:
            results[part] = work(of)

        first, *others = [slice(a, b) for a, b in pairwise(rows * at // parts for at in range(parts + 1))]
        with ExitStack() as begun:
            for at, (thread, of) in enumerate(zip(self._others, others, strict=False), start=1):
                thread.begin(partial(do, at, of))
                begun.callback(thread.wait)
            do(0, first)
        return list(chain.from_iterable(results))
