"""Control vectors: directions that are added to the outputs of a model's layers."""

import ctypes
import os
import re
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import llama_cpp
import numpy as np
from numpy.typing import NDArray

from engine.errors import LoadError
from engine.llama.ggml_functions import InitParams, libggml

_F32 = 0
_NAME = re.compile(r"direction\.([1-9][0-9]{0,5})")

_Direction: TypeAlias = NDArray[np.float32]


class ControlVector:
    """The sum of one or several control vectors."""

    def __init__(
        self, files: Sequence[tuple[str, float]], layers: tuple[int, int] | None, *, blocks: int, width: int
    ) -> None:
        """Read the files.

        Args:
            files: paths of GGUF files with tensors `direction.<layer>`, each with its scale.
            layers: first and last layer to add them to, from 1; None adds them to all layers.
            blocks: number of layers of the model.
            width: size of the model's embeddings.

        Raises:
            LoadError: a file is no control vector of such a model.
        """
        self._first, self._last = layers or (1, blocks)
        self._sum = np.zeros((max(blocks - 1, 0), width), np.float32)  # from layer 1 on
        for path, scale in files:
            for layer, direction in _directions(path):
                if layer >= blocks or direction.size != width:
                    raise LoadError(
                        f"the control vector {path} is for another model: layer {layer} has {direction.size} values, "
                        f"and this model has layers 1 to {blocks - 1} with {width} values"
                    )
                self._sum[layer - 1] += np.float32(scale) * direction

    def apply(self, context: int) -> bool:
        """Add the directions to the outputs of the layers in all later batches of a context.

        Return False if there is no memory for them.
        """
        values = self._sum.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
        width = self._sum.shape[1]
        return not llama_cpp.llama_set_adapter_cvec(context, values, self._sum.size, width, self._first, self._last)


def _directions(path: str) -> list[tuple[int, _Direction]]:
    """Return the layer and the values of each tensor of a file.

    Raises:
        LoadError: the file is no control vector.
    """
    file = libggml.gguf_init_from_file(os.fsencode(path), InitParams(no_alloc=True, ctx=None))
    if not file:
        raise LoadError(f"the control vector {path} cannot be read, or is not a GGUF file")
    try:
        directions = list(_tensors(file, path))
    except OSError as error:
        raise LoadError(f"the control vector {path} cannot be read: {error.strerror}") from error
    finally:
        libggml.gguf_free(file)
    if not directions:
        raise LoadError(f"the control vector {path} has no tensors")
    return directions


def _tensors(file: int, path: str) -> Iterator[tuple[int, _Direction]]:
    start = libggml.gguf_get_data_offset(file)
    for at in range(libggml.gguf_get_n_tensors(file)):
        name = libggml.gguf_get_tensor_name(file, at).decode(errors="replace")
        layer = _NAME.fullmatch(name)
        if not layer or libggml.gguf_get_tensor_type(file, at) != _F32:
            raise LoadError(f"{path} is no control vector: its tensor {name} is not an F32 direction of a layer")
        count = libggml.gguf_get_tensor_size(file, at) // np.float32().itemsize
        values = np.fromfile(path, np.float32, count, offset=start + libggml.gguf_get_tensor_offset(file, at))
        if values.size < count:
            raise LoadError(f"the control vector {path} is truncated")
        yield int(layer[1]), values
