"""OpenAI's own client obeys the refusals: it waits for a rate, and does not retry an exhausted budget."""

from collections.abc import Callable
from typing import Any

import anyio
import httpx
import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from starlette.types import ASGIApp

from gateway.keys.key import Key
from tests.backends import ON_VIRTUAL_CLOCK
from tests.gateway.asgi import AsgiCall
from tests.gateway.limits.limited import Limited, limited_by
from tests.gateway.limits.virtual import VirtualClock, key_with

ASK: dict[str, Any] = {"model": "tiny", "prompt": "four", "max_tokens": 6}


def transport(app: ASGIApp, attempts: list[int]) -> httpx.MockTransport:
    """Return a transport that calls the application without an event loop around it."""

    def send(request: httpx.Request) -> httpx.Response:
        call = AsgiCall(app, request.url.path, request.content)
        anyio.run(call.run, backend="trio")
        attempts.append(call.status)
        assert call.start is not None
        return httpx.Response(call.status, headers=call.start["headers"], content=call.content)

    return httpx.MockTransport(send)


@pytest.fixture
def attempts() -> list[int]:
    """Statuses of the answers."""
    return []


@pytest.fixture
def client_of(monkeypatch: pytest.MonkeyPatch, attempts: list[int]) -> Callable[[Key], OpenAI]:
    """Return a maker of clients for a gateway on a virtual clock, on which they also sleep."""
    clock = VirtualClock()
    monkeypatch.setattr("time.sleep", clock.advance)

    def make(key: Key) -> OpenAI:
        limited = limited_by(key, clock=clock)
        http: Any = httpx.Client(transport=transport(limited.app, attempts))
        return OpenAI(base_url="http://x/v1", api_key="none", http_client=http)

    return make


LIMITS = {"requests": key_with(requests_per_minute=2), "tokens": key_with(tokens_per_minute=13)}


@pytest.mark.parametrize("key", LIMITS.values(), ids=LIMITS)
def test_the_client_waits_for_a_rate_and_succeeds(
    client_of: Callable[[Key], OpenAI], attempts: list[int], key: Key
) -> None:
    with client_of(key) as client:
        answers = [client.completions.create(**ASK).choices[0].text for _ in range(4)]
    assert answers == ["a0"] * 4
    assert attempts == [200, 200, 429, 200, 429, 200]


def test_the_client_does_not_retry_an_exhausted_budget(client_of: Callable[[Key], OpenAI], attempts: list[int]) -> None:
    with client_of(key_with(tokens_per_month=10)) as client:
        client.completions.create(**ASK)
        with pytest.raises(openai.RateLimitError) as caught:
            client.completions.create(**ASK)
    assert attempts == [200, 429]
    assert (caught.value.code, caught.value.type) == ("insufficient_quota", "insufficient_quota")


def test_the_client_does_not_retry_a_request_that_is_wrong(
    client_of: Callable[[Key], OpenAI], attempts: list[int]
) -> None:
    with client_of(key_with()) as client, pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(**{**ASK, "temperature": -1})
    assert attempts == [400]
    assert caught.value.response.headers["x-should-retry"] == "false"


@pytest.mark.anyio
@ON_VIRTUAL_CLOCK
class TestAsynchronous:
    async def ask(self, limited: Limited, count: int) -> list[str]:
        http: Any = httpx.AsyncClient(transport=httpx.ASGITransport(limited.app))
        async with http, AsyncOpenAI(base_url="http://x/v1", api_key="none", http_client=http) as client:
            return [(await client.completions.create(**ASK)).choices[0].text for _ in range(count)]

    @pytest.mark.parametrize("key", LIMITS.values(), ids=LIMITS)
    async def test_the_client_waits_for_a_rate_and_succeeds(self, key: Key) -> None:
        started = anyio.current_time()
        assert await self.ask(limited_by(key), 4) == ["a0"] * 4
        assert anyio.current_time() - started > 10

    async def test_the_client_does_not_retry_an_exhausted_budget(self) -> None:
        limited, started = limited_by(key_with(tokens_per_day=10)), anyio.current_time()
        with pytest.raises(openai.RateLimitError):
            await self.ask(limited, 2)
        assert anyio.current_time() == pytest.approx(started, abs=0.1)
