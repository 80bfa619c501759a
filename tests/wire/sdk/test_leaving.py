"""Whichever way OpenAI's client leaves, its request is cancelled: the server says so, and what was freed."""

import re
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from tests.program import Embedded, said

pytestmark = [
    pytest.mark.anyio,
    # The SDK leaves its own generators unfinished at the end of a stream, and Trio tells of it.
    pytest.mark.filterwarnings("ignore:Exception ignored in. <async_generator:pytest.PytestUnraisableExceptionWarning"),
]

ON: dict[str, Any] = {"ignore_eos": True, "speculative": False}
ROUTES: dict[str, dict[str, Any]] = {
    "completions": {"prompt": "One", "max_tokens": 1900},
    "chat.completions": {"messages": [{"role": "user", "content": "Count to 200"}], "max_tokens": 1900},
    "responses": {"input": "Count to 200", "max_output_tokens": 1900},
}


def asked(route: str, request_id: str) -> dict[str, Any]:
    """A request that goes on until the context is full."""
    headers = {"x-request-id": request_id}
    return {"model": "tiny", "extra_body": ON, "extra_headers": headers, **ROUTES[route]}


def create(client: OpenAI | AsyncOpenAI, route: str) -> Callable[..., Any]:
    owner: Any = client
    for name in route.split("."):
        owner = getattr(owner, name)
    method: Callable[..., Any] = owner.create
    return method


def freed(embedded: Embedded, request_id: str) -> int:
    """Wait until the server says that the request is cancelled; how many tokens that freed."""
    line = said(embedded.process, f"request cancelled request_id={request_id} ")
    found = re.search(r'reason="client (?:closed|reset) the connection" phase=decode .* freed=(\d+)', line)
    assert found, line
    return int(found[1])


@pytest.mark.parametrize("route", ROUTES)
def test_a_timeout(embedded: Embedded, client: OpenAI, route: str) -> None:
    with pytest.raises(openai.APITimeoutError):
        create(client.with_options(timeout=0.2), route)(**asked(route, f"late-{route}"))
    assert freed(embedded, f"late-{route}") > 0


@pytest.mark.parametrize("route", ROUTES)
def test_the_end_of_a_with_block(embedded: Embedded, client: OpenAI, route: str) -> None:
    with create(client, route)(**asked(route, f"block-{route}"), stream=True) as stream:
        next(stream)
    assert freed(embedded, f"block-{route}") > 0


def test_the_end_of_a_helpers_block(embedded: Embedded, client: OpenAI) -> None:
    with client.chat.completions.stream(**asked("chat.completions", "helper")) as stream:
        next(stream)
    assert freed(embedded, "helper") > 0


@pytest.mark.parametrize("route", ROUTES)
async def test_a_cancelled_task(
    embedded: Embedded, async_client: AsyncOpenAI, route: str, anyio_backend_name: str
) -> None:
    request_id = f"task-{route}-{anyio_backend_name}"
    asking: Callable[..., Awaitable[object]] = create(async_client, route)
    with anyio.move_on_after(0.2) as waiting:
        await asking(**asked(route, request_id))
    assert waiting.cancelled_caught
    assert await anyio.to_thread.run_sync(freed, embedded, request_id) > 0
