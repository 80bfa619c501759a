"""How another thread stops a `llama_decode` that runs."""

import ctypes

import llama_cpp

_libc = ctypes.CDLL(None)


class AbortFlag:
    """A byte that llama.cpp reads at every node of its graph, and that any thread may set.

    The callback must not enter Python: every node would wait for the interpreter's lock. It takes a pointer and gives a
    truth value, and so does `strlen`, of a string of one character or none.

    Attributes:
        callback: for `llama_context_params.abort_callback`.
        data: for `llama_context_params.abort_callback_data`. Both must live as long as the context.
    """

    def __init__(self) -> None:
        self._string = ctypes.create_string_buffer(2)
        self.callback = ctypes.cast(_libc.strlen, llama_cpp.ggml_abort_callback)
        self.data = ctypes.cast(self._string, ctypes.c_void_p)

    def set(self) -> None:
        """Stop the decode that runs, and every later one until `clear`."""
        self._string[0] = b"\x01"

    def clear(self) -> None:
        """Let decodes run."""
        self._string[0] = b"\x00"
