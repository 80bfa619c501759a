"""The real models that tests run on."""

import os
import tempfile
from functools import cache
from pathlib import Path

from tests.random_model import write_random_model

VARIABLE = "LLAMA_GATEWAY_TEST_MODEL"
_DEVELOPMENT = Path(__file__).parents[2] / "shared" / "models" / "stories260K.gguf"


def model_path() -> Path:
    """Return the path of a small F32 model, in which a sequence does not depend on its neighbours.

    The one that the variable names, the trained one beside a development checkout, or one of random weights.
    """
    if chosen := os.environ.get(VARIABLE):
        return Path(chosen)
    return _DEVELOPMENT if _DEVELOPMENT.is_file() else _random_model()


@cache
def _random_model() -> Path:
    folder = tempfile.TemporaryDirectory(prefix="llama-gateway-")
    _folders.append(folder)
    path = Path(folder.name) / "random.gguf"
    write_random_model(path)
    return path


_folders: list[tempfile.TemporaryDirectory[str]] = []  # removed with the process
