from pathlib import Path

import pytest

from tests.backends import on_each_backend  # noqa: F401 - a fixture
from tests.engine.client.harness import Scripted


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def scripted(tmp_path: Path) -> Scripted:
    return Scripted(tmp_path / "journal")
