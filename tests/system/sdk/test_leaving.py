"""Every way in which OpenAI's client drops a request: the server cancels it and logs the freed tokens."""

import re
import time
from collections.abc import Callable
from typing import Any

import anyio
import httpx
import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from tests.backends import WITH_SDK
from tests.program import GUARD, Embedded, said

pytestmark = WITH_SDK

ON: dict[str, Any] = {"ignore_eos": True, "speculative": False}
TIMEOUTS = (0.2, 0.8, 3.2, 12.8)
"""Seconds. The second is for a machine so busy that the first ends before a request decodes."""
SAME_CLIENT = {"authorization": "Bearer none"}
"""The credentials of the client, because `/slots` shows others no request ids."""
ROUTES: dict[str, dict[str, Any]] = {
    "completions": {"prompt": "One", "max_tokens": 1900},
    "chat.completions": {"messages": [{"role": "user", "content": "Count to 200"}], "max_tokens": 1900},
    "responses": {"input": "Count to 200", "max_output_tokens": 1900},
}


def asked(route: str, request_id: str) -> dict[str, Any]:
    """Return the fields of a request that runs until the context is full."""
    headers = {"x-request-id": request_id}
    return {"model": "tiny", "extra_body": ON, "extra_headers": headers, **ROUTES[route]}


def create(client: OpenAI | AsyncOpenAI, route: str) -> Callable[..., Any]:
    owner: Any = client
    for name in route.split("."):
        owner = getattr(owner, name)
    method: Callable[..., Any] = owner.create
    return method


def ended(embedded: Embedded, request_id: str) -> tuple[str, int]:
    """Wait until the server logs the end of the request; return its phase and the number of freed tokens.

    A request that never reached the engine has no phase: its only line is that of the access log, which comes last.
    """
    line = said(embedded.process, f"request_id={request_id} ")
    if "request ended" in line:
        return "", 0
    found = re.search(r'reason="client (?:closed|reset) the connection" phase=(\w+) .* freed=(\d+)', line)
    assert found, line
    return found[1], int(found[2])


def freed(embedded: Embedded, request_id: str) -> int:
    """Return the number of freed tokens of a request that must have been decoding."""
    phase, tokens = ended(embedded, request_id)
    assert phase == "decode"
    return tokens


def until_it_decodes(embedded: Embedded, request_id: str) -> None:
    deadline = time.monotonic() + GUARD
    states: dict[str, str] = {}
    while states.get(request_id) != "decode":
        assert time.monotonic() < deadline
        slots = httpx.get(f"{embedded.root}/slots", headers=SAME_CLIENT, trust_env=False, timeout=GUARD).json()
        states = {slot["request_id"]: slot["state"] for slot in slots}


@pytest.mark.parametrize("route", ROUTES)
def test_a_client_timeout_cancels_the_request(embedded: Embedded, client: OpenAI, route: str) -> None:
    phase, tokens = "", 0
    for timeout in TIMEOUTS:
        if phase != "decode":
            request_id = f"late-{route}-{timeout}"
            hasty = client.with_options(timeout=openai.Timeout(GUARD, read=timeout))  # starts when the request is sent
            with pytest.raises(openai.APITimeoutError):
                create(hasty, route)(**asked(route, request_id))
            phase, tokens = ended(embedded, request_id)
    assert phase == "decode"
    assert tokens > 0


@pytest.mark.parametrize("route", ROUTES)
def test_leaving_a_stream_block_cancels_the_request(embedded: Embedded, client: OpenAI, route: str) -> None:
    with create(client, route)(**asked(route, f"block-{route}"), stream=True) as stream:
        next(stream)
        until_it_decodes(embedded, f"block-{route}")
    assert freed(embedded, f"block-{route}") > 0


def test_leaving_a_stream_helper_block_cancels_the_request(embedded: Embedded, client: OpenAI) -> None:
    with client.chat.completions.stream(**asked("chat.completions", "helper")) as stream:
        next(stream)
        until_it_decodes(embedded, "helper")
    assert freed(embedded, "helper") > 0


@pytest.mark.parametrize("route", ROUTES)
async def test_a_cancelled_task_cancels_the_request(
    embedded: Embedded, async_client: AsyncOpenAI, route: str, anyio_backend_name: str
) -> None:
    request_id = f"task-{route}-{anyio_backend_name}"

    async def ask() -> None:
        await create(async_client, route)(**asked(route, request_id))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        await anyio.to_thread.run_sync(until_it_decodes, embedded, request_id)
        tasks.cancel_scope.cancel()
    assert await anyio.to_thread.run_sync(freed, embedded, request_id) > 0
