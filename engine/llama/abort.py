"""A flag by which another thread stops a running `llama_decode`."""

import ctypes
from collections.abc import Callable

import llama_cpp

_libc = ctypes.CDLL(None)


class AbortFlag:
    """A byte that llama.cpp reads at every node of its graph and that any thread may set.

    The callback must not enter Python, because every node would wait for the interpreter's lock. It takes a pointer and
    returns a truth value. `strlen` does the same, with a string of one or zero characters.
    """

    callback: Callable[[ctypes.c_void_p], bool]
    """For `llama_context_params.abort_callback`. It must live as long as the context."""
    data: ctypes.c_void_p
    """For `llama_context_params.abort_callback_data`. It must live as long as the context."""

    def __init__(self) -> None:
        self._string = ctypes.create_string_buffer(2)
        self.callback = ctypes.cast(_libc.strlen, llama_cpp.ggml_abort_callback)
        self.data = ctypes.cast(self._string, ctypes.c_void_p)

    @property
    def is_set(self) -> bool:
        """True after `set` and before `clear`."""
        return bool(self._string.value)

    def set(self) -> None:
        """Stop the running decode and every later one until `clear`."""
        self._string[0] = b"\x01"

    def clear(self) -> None:
        """Let decodes run."""
        self._string[0] = b"\x00"
