"""Names and sizes of the tensors in a GGUF file, read without loading it."""

import ctypes
import os
import re
from collections.abc import Iterator
from pathlib import Path

from llama_cpp._ggml import libggml  # the bindings do not wrap the GGUF functions

from engine.errors import LoadError

_PART = re.compile(r"(.*)-\d{5}-of-(\d{5})\.gguf")


class _InitParams(ctypes.Structure):
    """`struct gguf_init_params`, gguf.h."""

    _fields_ = (("no_alloc", ctypes.c_bool), ("ctx", ctypes.c_void_p))


libggml.gguf_init_from_file.argtypes = [ctypes.c_char_p, _InitParams]
libggml.gguf_init_from_file.restype = ctypes.c_void_p
libggml.gguf_free.argtypes = [ctypes.c_void_p]
libggml.gguf_free.restype = None
libggml.gguf_get_n_tensors.argtypes = [ctypes.c_void_p]
libggml.gguf_get_n_tensors.restype = ctypes.c_int64
libggml.gguf_get_tensor_name.argtypes = [ctypes.c_void_p, ctypes.c_int64]
libggml.gguf_get_tensor_name.restype = ctypes.c_char_p
libggml.gguf_get_tensor_size.argtypes = [ctypes.c_void_p, ctypes.c_int64]
libggml.gguf_get_tensor_size.restype = ctypes.c_size_t


def read_tensors(path: Path) -> dict[str, int]:
    """Return the bytes of each tensor by its name, of all parts of a split file.

    Raises:
        LoadError: a part cannot be read.
    """
    return {name: size for part in _parts(path) for name, size in _tensors(part)}


def _parts(path: Path) -> list[Path]:
    """Return all files of a model that is split by llama.cpp's naming, or the only one."""
    match = _PART.fullmatch(path.name)
    if match is None:
        return [path]
    return [path.with_name(f"{match[1]}-{at:05}-of-{match[2]}.gguf") for at in range(1, int(match[2]) + 1)]


def _tensors(path: Path) -> Iterator[tuple[str, int]]:
    handle = libggml.gguf_init_from_file(os.fsencode(path), _InitParams(True, None))
    if not handle:
        raise LoadError(f"{path} cannot be read as a GGUF file")
    try:
        for at in range(libggml.gguf_get_n_tensors(handle)):
            name = libggml.gguf_get_tensor_name(handle, at).decode(errors="replace")
            yield name, libggml.gguf_get_tensor_size(handle, at)
    finally:
        libggml.gguf_free(handle)
