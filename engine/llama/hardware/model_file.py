"""Tensors of a GGUF file, read without loading the model."""

import os
from pathlib import Path

from engine.errors import LoadError
from engine.gguf.split_file import parts_of
from engine.llama.ggml_functions import InitParams, libggml


def read_tensors(path: Path) -> dict[str, int]:
    """Return the bytes of each tensor of a model by its name, of all parts of a split file.

    Raises:
        LoadError: a part cannot be read.
    """
    tensors: dict[str, int] = {}
    for part in map(path.with_name, parts_of(path.name)):
        handle = libggml.gguf_init_from_file(os.fsencode(part), InitParams(True, None))
        if not handle:
            raise LoadError(f"{part} cannot be read as a GGUF file")
        for at in range(libggml.gguf_get_n_tensors(handle)):
            name = libggml.gguf_get_tensor_name(handle, at).decode(errors="replace")
            tensors[name] = libggml.gguf_get_tensor_size(handle, at)
        libggml.gguf_free(handle)
    return tensors
