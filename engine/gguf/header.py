"""Properties of a GGUF file, read from its header without llama.cpp. The format is in ggml's `docs/gguf.md`."""

import os
import struct
import sys
from collections.abc import Mapping
from io import BufferedReader
from pathlib import Path
from typing import TypeAlias

from engine.regular_files import require_regular

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_MOST_KEYS = 4096
_LONGEST = 2**26
"""Bytes of a string and of a header up to its vocabulary, and items of an array. Only damaged files have more."""
MOST_NUMBERS = 2**16
"""Numbers of an array that is kept. A longer one says no more about the layers."""
MOST_LAYERS = 2**16
"""Layers of a model. Lists for each of them are made."""
_VOCABULARY = "tokenizer.ggml.tokens"
"""The keys of the architecture come before it, as a rule, and reading it takes long."""

Value: TypeAlias = int | float | bool | str | tuple[int | float | bool, ...]


def read_header(path: Path) -> Mapping[str, Value]:
    """Return the metadata of a GGUF file up to its vocabulary, or all if the number of layers comes behind it.

    llama.cpp's quantising appends the keys that it changes, such as those of pruned layers.

    Raises:
        ValueError: the file is damaged.
        OSError: the file cannot be read.
    """
    values: dict[str, Value] = {}
    require_regular(path)
    with path.open("rb") as file:
        try:
            magic, _version, _tensors, keys = struct.unpack("<4sIQQ", file.read(24))
            if magic != b"GGUF" or keys > _MOST_KEYS:
                raise ValueError("this is not a GGUF file")
            for _ in range(keys):
                if file.tell() > _LONGEST:
                    raise ValueError("the header is too long")
                key = _string(file)
                if key == _VOCABULARY and layers_of(values):
                    break
                values[key] = _value(file, *_read(file, "<I"))
        except struct.error as error:
            raise ValueError("the header ends early") from error
    return values


def number(header: Mapping[str, Value], key: str) -> int:
    """Return a number of the architecture, the largest if it has one for each layer; 0 without one.

    Raises:
        ValueError: it is no number, or no size.
    """
    value = header.get(f"{header.get('general.architecture')}.{key}", 0)
    return _whole(max(value, default=0) if isinstance(value, tuple) else value)


def numbers(header: Mapping[str, Value], key: str, layers: int, default: int) -> list[int]:
    """Return the number of each layer. The file has a list of them, or one for all. Raises `ValueError` as `number`."""
    value = header.get(f"{header.get('general.architecture')}.{key}", default)
    each = value if isinstance(value, tuple) else (value,) * layers
    return [_whole(one) for one in each[:layers]]


def layers_of(header: Mapping[str, Value]) -> int:
    """Return the number of layers; 0 without one. Raises `ValueError` as `number`, and if there are too many."""
    if (layers := number(header, "block_count")) > MOST_LAYERS:
        raise ValueError(f"it has {layers} layers")
    return layers


def _whole(value: float | str) -> int:
    if isinstance(value, str) or not 0 <= value <= sys.maxsize:
        raise ValueError(f"a size is {str(value)[:40]!r}")
    return int(value)


def _read(file: BufferedReader, form: str) -> tuple[int, ...]:
    return struct.unpack(form, file.read(struct.calcsize(form)))


def _string(file: BufferedReader) -> str:
    (length,) = _read(file, "<Q")
    if length > _LONGEST:
        raise ValueError("a string is too long")
    return file.read(length).decode(errors="replace")


def _value(file: BufferedReader, kind: int) -> Value:
    if kind == _STRING:
        return _string(file)
    if kind != _ARRAY:
        return _read(file, f"<{_scalar(kind)}")[0]
    (of, count) = _read(file, "<IQ")
    if count > _LONGEST:
        raise ValueError("an array is too long")
    if of == _STRING:
        for _ in range(count):
            _string(file)
        return ()
    form = f"<{count}{_scalar(of)}"
    if count > MOST_NUMBERS:
        file.seek(struct.calcsize(form), os.SEEK_CUR)
        return ()
    return _read(file, form)


def _scalar(kind: int) -> str:
    if kind not in _SCALARS:
        raise ValueError(f"there is no type {kind}")
    return _SCALARS[kind]
