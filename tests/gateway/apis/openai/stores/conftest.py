"""A PostgreSQL server for all tests of this folder."""

from collections.abc import Iterator

import pytest

from tests.postgres import installed, serving_postgres


@pytest.fixture(scope="package")
def url() -> Iterator[str]:
    with serving_postgres(installed()) as place:
        yield place
