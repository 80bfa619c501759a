"""Backends of the tests of the routes."""

import pytest

from tests.backends import TRIO_FIRST


@pytest.fixture(params=TRIO_FIRST)
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Run on Trio, and on asyncio only with `-m thorough`: what depends on the backend is below the routes."""
    name: str = request.param
    return name
