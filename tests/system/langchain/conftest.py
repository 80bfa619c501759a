"""LangChain's models, connected to the embedded model of the program."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from openai import DefaultAsyncHttpxClient, DefaultHttpxClient

from tests.program import GUARD, Embedded


@pytest.fixture
def anyio_backend() -> str:
    """The backend of LangChain's async forms, which run on asyncio only."""
    return "asyncio"


@pytest.fixture(scope="session")
def options(embedded: Embedded) -> Iterator[dict[str, Any]]:
    """Options of every LangChain model: a base URL, and an HTTP client, because LangChain does not close its own."""
    with DefaultHttpxClient() as http:
        own = {"base_url": embedded.url, "api_key": "none", "model": "tiny", "max_retries": 0, "timeout": GUARD}
        yield {**own, "http_client": http}


@pytest.fixture
async def async_options(options: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
    """Options of the async forms."""
    async with DefaultAsyncHttpxClient() as http:
        yield {**options, "http_async_client": http}


@pytest.fixture(autouse=True)
def no_downloads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop LangChain from downloading OpenAI's vocabularies, with which it may count tokens."""
    monkeypatch.setattr("tiktoken.load.read_file", None)
