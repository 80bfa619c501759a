"""Random-weight models of the families: written when a test first needs them, in F32, a few hundred kilobytes each."""

import tempfile
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import gguf
import numpy as np

from tests.architectures.families import ALONE, FAMILIES, Family, Value
from tests.architectures.tensors import expected_tensors
from tests.architectures.weights import optional, random_weights
from tests.random_model import finish, write_vocabulary

_BY_NAME = {family.name: family for family in (*FAMILIES, *ALONE)}
_folder = tempfile.TemporaryDirectory(prefix="llama-gateway-")  # removed with the process


@cache
def family_model(name: str) -> Path:
    """Return the path of the model of a family. The same for the whole process."""
    path = Path(_folder.name) / f"{name}.gguf"
    write_family(_BY_NAME[name], path)
    return path


def write_family(family: Family, path: Path) -> None:
    """Write the model of a family. Each machine writes the same bytes."""
    write_weights(path, partial(_described, family), family.sharpness)


def write_weights(path: Path, described: Callable[[Path], gguf.GGUFWriter], sharpness: float) -> None:
    """Write a file with random weights. llama.cpp names the tensors that its description needs."""
    metadata = path.with_suffix(".metadata")
    finish(described(metadata))
    writer = described(path)
    rng = np.random.default_rng(0)
    for name, shape in sorted(expected_tensors(metadata).items()):
        if not optional(name):
            writer.add_tensor(name, random_weights(rng, name, shape, sharpness))
    finish(writer)
    metadata.unlink()


def _described(family: Family, path: Path) -> gguf.GGUFWriter:
    writer = gguf.GGUFWriter(str(path), family.architecture)
    writer.add_name(f"random {family.name}")
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    for key, value in family.parameters.items():
        _add(writer, f"{family.architecture}.{key}", value)
    write_vocabulary(writer)
    return writer


def _add(writer: gguf.GGUFWriter, key: str, value: Value) -> None:
    match value:
        case bool():
            writer.add_bool(key, value)
        case int():
            writer.add_uint32(key, value)
        case float():
            writer.add_float32(key, value)
        case _:
            writer.add_array(key, value)
