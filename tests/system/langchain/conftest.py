"""LangChain's models, for the one that the program carries."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from openai import DefaultAsyncHttpxClient, DefaultHttpxClient

from tests.program import GUARD, Embedded


@pytest.fixture
def anyio_backend() -> str:
    """LangChain's async forms run on asyncio alone."""
    return "asyncio"


@pytest.fixture(scope="session")
def options(embedded: Embedded) -> Iterator[dict[str, Any]]:
    """What every one of them is made with: another base URL. They do not close an HTTP client of their own making."""
    with DefaultHttpxClient() as http:
        own = {"base_url": embedded.url, "api_key": "none", "model": "tiny", "max_retries": 0, "timeout": GUARD}
        yield {**own, "http_client": http}


@pytest.fixture
async def async_options(options: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
    """The same, for the async forms."""
    async with DefaultAsyncHttpxClient() as http:
        yield {**options, "http_async_client": http}


@pytest.fixture(autouse=True)
def no_downloads(monkeypatch: pytest.MonkeyPatch) -> None:
    """LangChain may count tokens by OpenAI's own vocabularies, which are not ours, and would fetch them."""
    monkeypatch.setattr("tiktoken.load.read_file", None)
