from pathlib import Path

import pytest

from tests.engine.client.harness import Scripted


@pytest.fixture
def scripted(tmp_path: Path) -> Scripted:
    return Scripted(tmp_path / "journal")
