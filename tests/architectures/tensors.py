"""The tensors that llama.cpp expects in a file of some architecture, as llama.cpp itself names them."""

import ctypes
from pathlib import Path
from typing import TypeAlias

import llama_cpp

Shape: TypeAlias = tuple[int, ...]
"""Sizes as numpy orders them: the last one is contiguous."""

_base = ctypes.CDLL(str(Path(llama_cpp.__file__).parent / "lib" / "libggml-base.so"))


class _InitParams(ctypes.Structure):
    """`struct gguf_init_params`."""

    _fields_ = (("no_alloc", ctypes.c_bool), ("context", ctypes.c_void_p))


class _Tensor(ctypes.Structure):
    """The beginning of `struct ggml_tensor`."""

    _fields_ = (("type", ctypes.c_int), ("buffer", ctypes.c_void_p), ("sizes", ctypes.c_int64 * 4))


_base.gguf_init_from_file.restype = ctypes.c_void_p
_base.gguf_init_from_file.argtypes = [ctypes.c_char_p, _InitParams]
_base.gguf_free.argtypes = [ctypes.c_void_p]
_base.ggml_get_name.restype = ctypes.c_char_p
_base.ggml_get_name.argtypes = [ctypes.c_void_p]


def expected_tensors(metadata: Path) -> dict[str, Shape]:
    """Return the names and shapes of all tensors, including optional ones, of a model with this metadata.

    llama.cpp makes such a model in memory and calls back to fill each of its tensors.

    Args:
        metadata: a GGUF file without tensors.

    Raises:
        ValueError: llama.cpp cannot make the model. Its log has the reason.
    """
    shapes: dict[str, Shape] = {}

    @llama_cpp.llama_model_set_tensor_data_t  # type: ignore[untyped-decorator]
    def note(tensor: int, _data: int) -> None:
        sizes = ctypes.cast(tensor, ctypes.POINTER(_Tensor)).contents.sizes
        shapes[_base.ggml_get_name(tensor).decode()] = _shape(list(sizes))

    params = llama_cpp.llama_model_default_params()
    params.n_gpu_layers = 0
    llama_cpp.llama_backend_init()
    context = _base.gguf_init_from_file(bytes(metadata), _InitParams(no_alloc=True))
    model = llama_cpp.llama_model_init_from_user(context, note, None, params)
    _base.gguf_free(context)
    if not model:
        raise ValueError(f"llama.cpp cannot make a model of {metadata}")
    llama_cpp.llama_model_free(model)
    return shapes


def _shape(sizes: list[int]) -> Shape:
    while len(sizes) > 1 and sizes[-1] == 1:
        sizes.pop()
    return tuple(reversed(sizes))
