"""Backends of the tests of failures."""

import pytest

from tests.backends import TRIO_FIRST


@pytest.fixture(params=TRIO_FIRST)
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Run on Trio, and on asyncio only with `-m thorough`."""
    name: str = request.param
    return name
