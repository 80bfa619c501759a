"""Calls of llama.cpp's short functions with the interpreter's lock.

`ctypes` releases the lock for every call. Another thread that waits for it takes it then, and keeps it for up to
`sys.getswitchinterval()`. So a step would wait for other threads at every short call, and not only where it computes.
"""

import ctypes
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

import llama_cpp.llama_cpp

P = ParamSpec("P")
R = TypeVar("R")

_library = ctypes.PyDLL(llama_cpp.llama_cpp._lib._name)  # noqa: SLF001 - the library that is loaded already


def short(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function of llama.cpp, called without releasing the interpreter's lock."""
    released = cast("Any", function)
    held = getattr(_library, released.__name__)
    held.argtypes, held.restype = released.argtypes, released.restype
    return cast("Callable[P, R]", held)
