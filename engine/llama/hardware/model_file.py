"""Tensors and numbers of a GGUF file, read without loading the model."""

import ctypes
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from engine.errors import LoadError
from engine.llama.ggml_functions import InitParams, libggml

_PART = re.compile(r"(.*)-\d{5}-of-(\d{5})\.gguf")
_ARCHITECTURE = "general.architecture"
_UINT32, _INT32, _STRING, _ARRAY = 4, 5, 8, 9  # enum gguf_type, gguf.h


@dataclass(frozen=True, slots=True)
class ModelFile:
    """Tensors and numbers of a model's file."""

    tensors: Mapping[str, int]
    """Bytes of each tensor by its name, of all parts of a split file."""
    numbers: Mapping[str, list[int]]
    """Whole numbers of the architecture by their keys, without its name. One for each layer, or a single one."""

    def number(self, key: str, layer: int = 0, *, default: int = 0) -> int:
        """Return a number of a layer, or the default if the file does not have it."""
        values = self.numbers.get(key, [default])
        return values[min(layer, len(values) - 1)]


def read_model_file(path: Path) -> ModelFile:
    """Return the tensors and numbers of a model.

    Raises:
        LoadError: a part cannot be read.
    """
    tensors: dict[str, int] = {}
    numbers: dict[str, list[int]] = {}
    for part in _parts(path):
        handle = libggml.gguf_init_from_file(os.fsencode(part), InitParams(True, None))
        if not handle:
            raise LoadError(f"{part} cannot be read as a GGUF file")
        try:
            tensors.update(_tensors(handle))
            numbers.update(_numbers(handle))
        finally:
            libggml.gguf_free(handle)
    return ModelFile(tensors, numbers)


def _parts(path: Path) -> list[Path]:
    """Return all files of a model that is split by llama.cpp's naming, or the only one."""
    match = _PART.fullmatch(path.name)
    if match is None:
        return [path]
    return [path.with_name(f"{match[1]}-{at:05}-of-{match[2]}.gguf") for at in range(1, int(match[2]) + 1)]


def _tensors(handle: int) -> Iterator[tuple[str, int]]:
    for at in range(libggml.gguf_get_n_tensors(handle)):
        yield _text(libggml.gguf_get_tensor_name(handle, at)), libggml.gguf_get_tensor_size(handle, at)


def _numbers(handle: int) -> Iterator[tuple[str, list[int]]]:
    keys = {_text(libggml.gguf_get_key(handle, at)): at for at in range(libggml.gguf_get_n_kv(handle))}
    at = keys.get(_ARCHITECTURE)
    if at is None or libggml.gguf_get_kv_type(handle, at) != _STRING:
        return
    prefix = _text(libggml.gguf_get_val_str(handle, at)) + "."
    for key, at in keys.items():
        if key.startswith(prefix) and (values := _values(handle, at)):
            yield key.removeprefix(prefix), values


def _values(handle: int, at: int) -> list[int]:
    """Return the whole numbers of a key; none if it has others."""
    kind = libggml.gguf_get_kv_type(handle, at)
    if kind == _UINT32:
        return [libggml.gguf_get_val_u32(handle, at)]
    if kind != _ARRAY or libggml.gguf_get_arr_type(handle, at) not in (_UINT32, _INT32):
        return []
    length = libggml.gguf_get_arr_n(handle, at)
    return list((ctypes.c_int32 * length).from_address(libggml.gguf_get_arr_data(handle, at))) if length else []


def _text(name: bytes) -> str:
    return name.decode(errors="replace")
