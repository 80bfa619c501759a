"""The file that training leaves."""

from pathlib import Path

import pytest

from engine import embedded


def trained_model() -> Path:
    """Its path. Skips the test while there is none."""
    if not embedded.path().is_file():
        pytest.skip("the package carries no trained model yet: python -m engine.embedded.train")
    return embedded.path()
