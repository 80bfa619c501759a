"""Backends of the tests of the routes."""

import pytest

from tests.repeat import thorough


@pytest.fixture(params=["trio", pytest.param("asyncio", marks=thorough)])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Run on Trio, and on asyncio only with `-m thorough`: what depends on the backend is below the routes."""
    name: str = request.param
    return name
