"""The longest time for which one step of a task holds the event loop, in CPU seconds of the loop's thread.

CPU time, because other processes on the machine must not make a test fail.
"""

import asyncio
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import thread_time
from unittest.mock import patch

import trio


@dataclass
class LoopSteps:
    """Steps of the tasks of one event loop."""

    longest: float = 0.0
    """CPU seconds of the longest step."""
    culprit: str = ""
    """Task or callback of the longest step."""
    _begun: float = field(default_factory=thread_time)

    def begin(self) -> None:
        self._begun = thread_time()

    def end(self, step: object) -> None:
        took = thread_time() - self._begun
        if took > self.longest:
            self.longest, self.culprit = took, repr(step)


class _TrioSteps(trio.abc.Instrument):
    def __init__(self, steps: LoopSteps) -> None:
        self._steps = steps

    def before_task_step(self, task: trio.lowlevel.Task) -> None:  # noqa: ARG002
        self._steps.begin()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self._steps.end(task)


@contextmanager
def watch_steps(backend: str) -> Iterator[LoopSteps]:
    """Measure every step of the running event loop inside the context.

    As in the program, collections of garbage do not scan the modules, of which a test process has many.
    """
    gc.collect()
    gc.freeze()
    steps = LoopSteps()
    if backend == "trio":
        instrument = _TrioSteps(steps)
        trio.lowlevel.add_instrument(instrument)
        try:
            yield steps
        finally:
            trio.lowlevel.remove_instrument(instrument)
    else:
        run = asyncio.Handle._run

        def timed(handle: asyncio.Handle) -> None:
            steps.begin()
            run(handle)
            steps.end(handle)

        with patch.object(asyncio.Handle, "_run", timed):
            yield steps
