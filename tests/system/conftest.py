"""Fixtures of tests of a program that serves."""

from collections.abc import AsyncIterator, Iterator

import pytest
from openai import AsyncOpenAI, OpenAI

from tests.backends import TRIO_FIRST
from tests.program import GUARD
from tests.system.description import DOCUMENT, Description, read_description


@pytest.fixture(scope="module", params=TRIO_FIRST)
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """The backend of the tests, and of the program that a module of them starts."""
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[OpenAI]:
    """OpenAI's own client, for the URL of the module's fixture `url`."""
    with OpenAI(base_url=url, api_key="none", max_retries=0, timeout=GUARD) as client:
        yield client


@pytest.fixture
async def async_client(url: str) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=url, api_key="none", max_retries=0, timeout=GUARD) as client:
        yield client


@pytest.fixture(scope="session")
def description() -> Description:
    if not DOCUMENT.is_file():
        pytest.skip(f"no description of OpenAI's interface at {DOCUMENT}")
    return read_description()
