"""LoRA adapters and control vectors of random values for a small F32 model, and the model with an adapter merged."""

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray

from tests.random_model import finish

RANK = 4
ALPHA = 8.0
_ADAPTED = ("attn_q.weight", "attn_v.weight", "ffn_down.weight", "output.weight")

Pair = tuple[NDArray[np.float32], NDArray[np.float32]]


def _architecture(model: gguf.GGUFReader) -> str:
    return str(model.fields["general.architecture"].contents())


def _pairs(model: gguf.GGUFReader, seed: int) -> dict[str, Pair]:
    """Return the two factors of the change of some weights, by their names."""
    rng = np.random.default_rng(seed)
    pairs = {}
    for tensor in model.tensors:
        if tensor.name.endswith(_ADAPTED):
            inputs, outputs = map(int, tensor.shape)
            a = rng.standard_normal((RANK, inputs), dtype=np.float32) / np.float32(np.sqrt(inputs))
            pairs[tensor.name] = a, rng.standard_normal((outputs, RANK), dtype=np.float32) / np.float32(4)
    return pairs


def write_adapter(
    path: Path,
    model: Path,
    seed: int,
    *,
    architecture: str | None = None,
    kind: str = "lora",
    rename: Mapping[str, str] | None = None,
    invocation: Iterable[int] = (),
) -> Path:
    """Write an adapter of the model and return its path. The keyword arguments make one that cannot be used."""
    reader = gguf.GGUFReader(model)
    writer = gguf.GGUFWriter(str(path), architecture or _architecture(reader))
    writer.add_type("adapter")
    writer.add_string("adapter.type", kind)
    writer.add_float32("adapter.lora.alpha", ALPHA)
    if tokens := list(invocation):
        writer.add_key_value(
            "adapter.alora.invocation_tokens", tokens, gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.UINT32
        )
    for name, (a, b) in _pairs(reader, seed).items():
        written = (rename or {}).get(name, name)
        writer.add_tensor(f"{written}.lora_a", a)
        writer.add_tensor(f"{written}.lora_b", b)
    finish(writer)
    return path


def write_merged(path: Path, model: Path, adapters: Iterable[tuple[int, float]]) -> Path:
    """Write the model with adapters merged, each a seed and a scale, and return its path."""
    shutil.copyfile(model, path)
    reader = gguf.GGUFReader(path, "r+")
    for seed, scale in adapters:
        pairs = _pairs(gguf.GGUFReader(model), seed)
        for tensor in reader.tensors:
            if tensor.name in pairs:
                a, b = pairs[tensor.name]
                tensor.data[:] += np.float32(scale * ALPHA / RANK) * (b @ a)
    reader.data.flush()
    return path


def write_control_vector(path: Path, directions: Mapping[str, NDArray[np.float32]]) -> Path:
    """Write a control vector with tensors of these names, and return its path."""
    writer = gguf.GGUFWriter(str(path), "controlvector")
    for name, values in directions.items():
        writer.add_tensor(name, values)
    finish(writer)
    return path
