"""Databases for the usage store."""

from pathlib import Path

import pytest


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "usage.sqlite")
