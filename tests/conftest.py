"""What every test may use."""

import pytest


@pytest.fixture(params=["trio", "asyncio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Whatever uses anyio is tested on both backends."""
    name: str = request.param
    return name
