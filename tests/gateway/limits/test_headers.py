"""The headers `x-ratelimit-*`."""

import pytest

from gateway.limits.headers import duration, rate_limit_headers
from gateway.limits.memory_limiter import MemoryLimiter
from gateway.limits.moment import NANOSECONDS
from tests.gateway.limits.virtual import VirtualClock, key_with, record_of


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0ms"),
        (0.02, "20ms"),
        (0.0201, "21ms"),
        (0.9999, "1s"),
        (1, "1s"),
        (7.66, "7.66s"),
        (59.9991, "1m0s"),
        (360, "6m0s"),
        (90.5, "1m30.5s"),
        (3723, "1h2m3s"),
    ],
)
def test_a_duration_is_written_as_openai_writes_it(seconds: float, text: str) -> None:
    assert duration(round(seconds * NANOSECONDS)) == text


@pytest.mark.anyio
async def test_the_headers_name_the_limits_what_remains_and_the_refill() -> None:
    clock = VirtualClock()
    limiter, key = MemoryLimiter(clock), key_with(requests_per_minute=60, tokens_per_minute=600)
    async with limiter.admitted(record_of(key), 200):
        clock.advance(0.5)
        assert rate_limit_headers(key, limiter) == [
            (b"x-ratelimit-limit-requests", b"60"),
            (b"x-ratelimit-remaining-requests", b"59"),
            (b"x-ratelimit-reset-requests", b"500ms"),
            (b"x-ratelimit-limit-tokens", b"600"),
            (b"x-ratelimit-remaining-tokens", b"405"),
            (b"x-ratelimit-reset-tokens", b"19.5s"),
        ]


@pytest.mark.anyio
async def test_a_debt_leaves_nothing_and_resets_later() -> None:
    limiter, key = MemoryLimiter(VirtualClock()), key_with(tokens_per_minute=60)
    async with limiter.admitted(record_of(key, completion_tokens=360), 60):
        pass
    headers = dict(rate_limit_headers(key, limiter))
    assert headers[b"x-ratelimit-remaining-tokens"] == b"0"
    assert headers[b"x-ratelimit-reset-tokens"] == b"6m0s"


def test_a_key_without_limits_per_minute_has_no_headers() -> None:
    assert not rate_limit_headers(key_with(concurrent_requests=1, tokens_per_day=5), MemoryLimiter(VirtualClock()))
