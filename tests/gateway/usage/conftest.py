"""A database for tests of the usage writer."""

from pathlib import Path

import pytest


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "usage.db")
