"""Progress of the threads, and detection of work that takes so long that the engine may be stuck."""

import threading
import time
from collections.abc import Callable

PATIENCE = 30.0
"""Seconds for one step or one piece of work. Half of the time after which the supervisor ends the process."""
_REPORT = 1.0
"""Seconds between two reports."""


class Progress:
    """Times the current work of each thread, which is what it does inside the context. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Start without work. `clock` returns seconds."""
        self._clock = clock
        self._began: dict[int, float] = {}
        self._reported = clock()
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self._began[threading.get_ident()] = self._clock()

    def __exit__(self, *_: object) -> None:
        del self._began[threading.get_ident()]

    def go_on(self) -> None:
        """Time the current work of this thread from now on, because a part of it is done."""
        self._began[threading.get_ident()] = self._clock()

    def should_report(self) -> bool:
        """Return True once a second, unless a thread has worked on a step or piece for longer than `PATIENCE`."""
        with self._lock:
            now = self._clock()
            due = now - self._reported >= _REPORT
            stuck = any(now - began > PATIENCE for began in list(self._began.values()))
            if due and not stuck:
                self._reported = now
            return due and not stuck
