"""The real models that tests run on."""

import os
from pathlib import Path

import pytest

VARIABLE = "LLAMA_GATEWAY_TEST_MODEL"
_DEVELOPMENT = Path(__file__).parents[2] / "shared" / "models" / "stories260K.gguf"


def model_path() -> Path:
    """A small F32 model, so that what a sequence gets does not depend on its neighbours. Skips the test without one."""
    path = Path(os.environ.get(VARIABLE, _DEVELOPMENT))
    if not path.is_file():
        pytest.skip(f"no test model at {path}: set {VARIABLE} to the path of a GGUF file")
    return path
