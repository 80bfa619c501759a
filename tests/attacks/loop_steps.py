"""The longest time for which an event loop is held up, in CPU seconds of the loop's thread.

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
    """Steps of the tasks of one event loop, and its passes."""

    longest: float = 0.0
    """CPU seconds of the longest step."""
    culprit: str = ""
    """Task or callback of the longest step."""
    longest_pass: float = 0.0
    """CPU seconds of the longest pass: all steps between two looks at the sockets. It is the loop's lag."""
    _step_begun: float = field(default_factory=thread_time)
    _pass_begun: float = field(default_factory=thread_time)

    def begin(self) -> None:
        self._step_begun = thread_time()

    def end(self, step: object) -> None:
        took = thread_time() - self._step_begun
        if took > self.longest:
            self.longest, self.culprit = took, repr(step)

    def begin_pass(self) -> None:
        self._pass_begun = thread_time()

    def end_pass(self) -> None:
        self.longest_pass = max(self.longest_pass, thread_time() - self._pass_begun)


class _TrioSteps(trio.abc.Instrument):
    def __init__(self, steps: LoopSteps) -> None:
        self._steps = steps

    def before_task_step(self, task: trio.lowlevel.Task) -> None:  # noqa: ARG002
        self._steps.begin()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self._steps.end(task)

    def after_io_wait(self, timeout: float) -> None:  # noqa: ARG002
        self._steps.begin_pass()

    def before_io_wait(self, timeout: float) -> None:  # noqa: ARG002
        self._steps.end_pass()


@contextmanager
def watch_steps(backend: str) -> Iterator[LoopSteps]:
    """Measure every step of the running event loop inside the context.

    As in the program, collections of garbage do not scan the modules, of which a test process has many.
    """
    gc.collect()
    gc.freeze()
    steps = LoopSteps()
    with _on_trio(steps) if backend == "trio" else _on_asyncio(steps):
        yield steps


@contextmanager
def _on_trio(steps: LoopSteps) -> Iterator[None]:
    instrument = _TrioSteps(steps)
    trio.lowlevel.add_instrument(instrument)
    try:
        yield
    finally:
        trio.lowlevel.remove_instrument(instrument)


@contextmanager
def _on_asyncio(steps: LoopSteps) -> Iterator[None]:
    run, run_once = asyncio.Handle._run, asyncio.BaseEventLoop._run_once  # type: ignore[attr-defined]  # no hook exists

    def timed(handle: asyncio.Handle) -> None:
        steps.begin()
        run(handle)
        steps.end(handle)

    def timed_pass(loop: asyncio.BaseEventLoop) -> None:
        steps.begin_pass()
        run_once(loop)
        steps.end_pass()

    with patch.object(asyncio.Handle, "_run", timed), patch.object(asyncio.BaseEventLoop, "_run_once", timed_pass):
        yield
