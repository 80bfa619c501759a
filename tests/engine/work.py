"""A counter of the engine's work in Python, which is the same on every machine.

What loops in Python executes bytecode instructions in each turn. What loops in C, a copy of a list above all, is one
instruction, but it takes memory. Only a search in C that makes nothing would not be seen.
"""

import gc
import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import engine

NOISE = 4096
"""Bytes. A copy of a list of 1,000 takes 8,000."""
_TOOL = 4  # one that Python leaves to others
_ENGINE = str(Path(engine.__file__).parent)


@cache
def _counts(path: str) -> bool:
    return path.startswith(_ENGINE) and not Path(path).name.startswith("fake")


@dataclass
class Work:
    """The work counted so far."""

    instructions: int = 0
    """Bytecode instructions executed in the engine's files, except those of the fakes."""
    allocated: int = 0
    """The sum of the bytes that each call held at its highest, with all its callees, beyond those held before it."""
    _held: int = 0

    def note(self) -> None:
        """Count an instruction."""
        self.instructions += 1
        held, peak = tracemalloc.get_traced_memory()
        self.allocated += peak - self._held
        self._held = held
        tracemalloc.reset_peak()


if sys.version_info >= (3, 12):  # where a trace function misses instructions of functions that run for the first time

    @contextmanager
    def _traced(note: Callable[[], None]) -> Iterator[None]:
        """Call a function before each instruction of this thread that counts."""
        monitoring, own = sys.monitoring, threading.get_ident()

        def run(code: CodeType, _offset: int) -> Any:
            if not _counts(code.co_filename):
                return monitoring.DISABLE
            if threading.get_ident() == own:
                note()
            return None

        event = monitoring.events.INSTRUCTION
        monitoring.use_tool_id(_TOOL, "work")
        monitoring.register_callback(_TOOL, event, run)
        monitoring.set_events(_TOOL, event)
        try:
            yield
        finally:
            monitoring.set_events(_TOOL, monitoring.events.NO_EVENTS)
            monitoring.register_callback(_TOOL, event, None)
            monitoring.free_tool_id(_TOOL)

else:

    @contextmanager
    def _traced(note: Callable[[], None]) -> Iterator[None]:
        """Call a function before each instruction of this thread that counts."""

        def enter(frame: FrameType, _event: str, _argument: Any) -> Callable[..., Any] | None:
            if not _counts(frame.f_code.co_filename):
                return None
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
            return run

        def run(_frame: FrameType, event: str, _argument: Any) -> Callable[..., Any]:
            if event == "opcode":
                note()
            return run

        before = sys.gettrace()
        sys.settrace(enter)
        try:
            yield
        finally:
            sys.settrace(before)


@contextmanager
def counted() -> Iterator[Work]:
    """Count the work of this thread inside the context, in all its tasks. It runs some fifty times slower."""
    work = Work()
    tracemalloc.start()
    try:
        with _traced(work.note):
            yield work
    finally:
        tracemalloc.stop()


def work_of(call: Callable[[], object], *, times: int = 4) -> Work:
    """Return the least work of several calls: lists and tables grow in leaps."""

    def once() -> Work:
        with counted() as work:
            call()
        return work

    return min((once() for _ in range(times)), key=lambda work: (work.instructions, work.allocated))


def assert_same(one: Work, other: Work) -> None:
    """Raise `AssertionError` if two works differ by more than `NOISE`."""
    assert one.instructions == other.instructions
    assert abs(one.allocated - other.allocated) < NOISE


def blocks() -> int:
    """Return the number of memory blocks that Python's objects hold in this process."""
    gc.collect()
    return sys.getallocatedblocks()
