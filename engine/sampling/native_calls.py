"""Calls of native code that need more than `ctypes` gives: a large stack, or the interpreter's lock."""

import ctypes
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar, cast

P = ParamSpec("P")
T = TypeVar("T")

STACK = 256 * 2**20
"""Bytes of a large stack. Only pages that are used take memory. An overflow would end the process."""
_starting = threading.Lock()


def on_deep_stack(work: Callable[[], T], stack: int = STACK) -> T:
    """Run work that recurses deeply in a thread of its own with a large stack. Return its result or raise its error."""
    with ThreadPoolExecutor(1) as executor:
        with _starting:
            before = threading.stack_size(stack)
            try:
                future = executor.submit(work)
            finally:
                threading.stack_size(before)
        return future.result()


def short(function: Callable[P, T]) -> Callable[P, T]:
    """Return a short function of llama.cpp that keeps the interpreter's lock.

    Otherwise `ctypes` releases the lock for each call. Another thread that waits for it takes it then, and may keep it
    for `sys.getswitchinterval()`, so that a step would wait for other threads at each call.
    """
    return cast("Callable[P, T]", _held(function, cast("Any", function).restype))


def short_address(function: Callable[P, object]) -> Callable[P, int | None]:
    """Return `short` of a function that returns a pointer, as one that returns its address; None for a null pointer."""
    return cast("Callable[P, int | None]", _held(function, ctypes.c_void_p))


def _held(function: Callable[..., object], restype: object) -> object:
    released = cast("Any", function)
    prototype = ctypes.PYFUNCTYPE(cast("Any", restype), *released.argtypes)
    return prototype(ctypes.cast(released, ctypes.c_void_p).value or 0)
