"""Databases for tests of the gateway."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.postgres import new_database


@pytest.fixture(scope="module")
def url(postgres: str) -> Iterator[str]:
    """An empty PostgreSQL database, which the tests of a module share."""
    with new_database(postgres) as place:
        yield place


@pytest.fixture(params=["sqlite", "postgresql"])
def store_place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The place of an empty database of each kind."""
    if request.param == "sqlite":
        yield str(tmp_path / "store.db")
    else:
        with new_database(request.getfixturevalue("postgres")) as place:
            yield place
