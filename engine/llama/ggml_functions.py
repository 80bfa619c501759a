"""llama.cpp's functions that the bindings do not declare: those of devices, number types and GGUF files (gguf.h)."""

import ctypes

from llama_cpp._ggml import libggml

__all__ = ["InitParams", "declare", "libggml"]


class InitParams(ctypes.Structure):
    """`struct gguf_init_params`, gguf.h."""

    _fields_ = (("no_alloc", ctypes.c_bool), ("ctx", ctypes.c_void_p))


def declare(name: str, result: type | None, *arguments: type) -> None:
    """Set the types of a function's result and arguments."""
    function = getattr(libggml, name)
    function.restype, function.argtypes = result, arguments


declare("ggml_row_size", ctypes.c_size_t, ctypes.c_int, ctypes.c_int64)
declare("gguf_init_from_file", ctypes.c_void_p, ctypes.c_char_p, InitParams)
declare("gguf_free", None, ctypes.c_void_p)
declare("gguf_get_n_tensors", ctypes.c_int64, ctypes.c_void_p)
declare("gguf_get_tensor_name", ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int64)
declare("gguf_get_tensor_size", ctypes.c_size_t, ctypes.c_void_p, ctypes.c_int64)
declare("gguf_get_data_offset", ctypes.c_size_t, ctypes.c_void_p)
declare("gguf_get_tensor_type", ctypes.c_int, ctypes.c_void_p, ctypes.c_int64)
declare("gguf_get_tensor_offset", ctypes.c_size_t, ctypes.c_void_p, ctypes.c_int64)
