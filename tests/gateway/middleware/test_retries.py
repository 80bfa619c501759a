"""OpenAI's own client waits as long as a busy or loading server asks for, and then succeeds. On a virtual clock."""

from collections.abc import Callable
from typing import Any

import anyio
import httpx
import openai
import pytest
from openai import AsyncOpenAI
from typing_extensions import override

from engine import Busy, EngineError, Unavailable
from tests.backends import ON_VIRTUAL_CLOCK
from tests.gateway.application import app_of
from tests.gateway.fake_engine import FakeEngine

pytestmark = [pytest.mark.anyio, ON_VIRTUAL_CLOCK]


class BusyFor(FakeEngine):
    """An engine that refuses requests until a time, and says how long that takes."""

    def __init__(self, seconds: float, refusal: Callable[[float], EngineError]) -> None:
        super().__init__()
        self.attempts: list[float] = []
        """Times of the requests since the first one."""
        self._first_at: float | None = None
        self._seconds = seconds
        self._refusal = refusal

    @override
    async def accept(self, why: Callable[[], str]) -> None:
        now = anyio.current_time()
        self._first_at = now if self._first_at is None else self._first_at
        self.attempts.append(now - self._first_at)
        if self.attempts[-1] < self._seconds:
            raise self._refusal(self._seconds - self.attempts[-1])
        await super().accept(why)


REFUSALS: dict[str, Callable[[float], EngineError]] = {
    "a full queue": lambda left: Busy("full", code="queue_full", retry_after=left),
    "too long in the queue": lambda left: Busy("late", code="queue_timeout", retry_after=left),
    "loading": lambda left: Unavailable("loading", code="engine_unavailable", retry_after=left),
}


async def ask(engine: FakeEngine, **options: Any) -> str:
    http: Any = httpx.AsyncClient(transport=httpx.ASGITransport(app_of(engine)))
    async with http, AsyncOpenAI(base_url="http://x/v1", api_key="none", http_client=http, **options) as client:
        return (await client.completions.create(model="tiny", prompt="x")).choices[0].text


@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=REFUSALS)
@pytest.mark.parametrize("seconds", [7.0, 59.0])
async def test_the_first_retry_succeeds(seconds: float, refusal: Callable[[float], EngineError]) -> None:
    engine = BusyFor(seconds, refusal)
    assert await ask(engine, max_retries=1) == "a0"
    assert engine.attempts == pytest.approx([0, seconds], abs=0.01)


async def test_a_longer_wait_takes_several_retries() -> None:
    engine = BusyFor(150, REFUSALS["a full queue"])
    assert await ask(engine, max_retries=3) == "a0"
    assert engine.attempts == pytest.approx([0, 60, 120, 150], abs=0.01)


async def test_without_retries_the_error_says_how_long_to_wait() -> None:
    with pytest.raises(openai.RateLimitError) as caught:
        await ask(BusyFor(6.5, REFUSALS["a full queue"]), max_retries=0)
    headers = caught.value.response.headers
    assert (headers["retry-after"], headers["retry-after-ms"]) == ("7", "6500")
