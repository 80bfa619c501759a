"""A database for the shared limiter."""

from collections.abc import Iterator

import pytest

from tests.postgres import programs, serving_postgres


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    found = programs()
    if found is None:
        pytest.skip("PostgreSQL is not installed (Debian: apt-get install postgresql)")
    with serving_postgres(found) as place:
        yield place
