"""Control vectors on llama.cpp."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from engine.config import EngineConfig
from engine.errors import LoadError
from engine.llama.model import LlamaModel
from tests.engine.llama.test_adapters import Run, logprobs
from tests.models import model_path
from tests.random_adapter import write_control_vector

_READER = gguf.GGUFReader(model_path())
_NORM = next(tensor for tensor in _READER.tensors if tensor.name == "output_norm.weight")
WIDTH = int(_NORM.shape[0])
DIRECTION = np.random.default_rng(3).standard_normal(WIDTH, dtype=np.float32)


def answer(**settings: Any) -> list[float]:
    """Return the log-probabilities of an answer of the model with these settings."""
    with ExitStack() as stack:
        return logprobs(Run(stack, model_path(), **settings).ask())


def test_directions_are_scaled_added_and_limited_to_layers(tmp_path: Path) -> None:
    one = str(write_control_vector(tmp_path / "one.gguf", {"direction.1": DIRECTION}))
    half = str(write_control_vector(tmp_path / "half.gguf", {"direction.1": DIRECTION / np.float32(2)}))
    plain = answer()
    steered = answer(control_vectors=((one, 1.0),))
    assert steered != pytest.approx(plain, abs=1e-2)
    assert answer(control_vectors=((half, 3.0), (one, -0.5))) == pytest.approx(steered, abs=1e-3)
    assert answer(control_vectors=((one, 0.0),)) == pytest.approx(plain, abs=1e-3)
    assert answer(control_vectors=((one, 1.0),), control_vector_layers=(1, 1)) == pytest.approx(steered, abs=1e-3)
    assert answer(control_vectors=((one, 1.0),), control_vector_layers=(2, 9)) == pytest.approx(plain, abs=1e-3)


@pytest.mark.parametrize(
    ("name", "values", "reason"),
    [
        ("direction.0", DIRECTION, "is no control vector: its tensor direction.0 "),
        ("weight", DIRECTION, "is no control vector: its tensor weight "),
        ("direction.1", DIRECTION.astype(np.float16), "is no control vector"),
        ("direction.1", DIRECTION[1:], f"is for another model: layer 1 has {WIDTH - 1} values"),
        ("direction.99", DIRECTION, "is for another model: layer 99 has"),
    ],
)
def test_a_file_for_another_model_is_refused_in_one_line(tmp_path: Path, name: str, values: Any, reason: str) -> None:
    _refused(write_control_vector(tmp_path / "wrong.gguf", {name: values}), reason)


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    path = write_control_vector(tmp_path / "short.gguf", {"direction.1": DIRECTION})
    path.write_bytes(path.read_bytes()[:-64])
    _refused(path, "is truncated")
    path.write_bytes(b"GGUF and nothing else")
    _refused(path, "cannot be read, or is not a GGUF file")
    _refused(write_control_vector(path, {}), "has no tensors")


def _refused(path: Path, reason: str) -> None:
    config = EngineConfig(model=str(model_path()), slots=1, context=64, control_vectors=((str(path), 1.0),))
    with pytest.raises(LoadError, match=reason) as refused:
        LlamaModel(config, lambda _share: None)
    assert str(path) in refused.value.message
