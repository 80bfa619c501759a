from pathlib import Path

import pytest

from tests.engine.link.harness import Scripted


@pytest.fixture
def scripted(tmp_path: Path) -> Scripted:
    return Scripted(tmp_path / "journal")
