"""A database for the shared limiter."""

from collections.abc import Iterator

import pytest

from tests.postgres import installed, serving_postgres


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving_postgres(installed()) as place:
        yield place
