"""Anthropic's names of response headers."""

from datetime import UTC, datetime

import pytest

from gateway.apis.anthropic.headers import anthropic_headers
from gateway.middleware.origin import EXPOSED_HEADERS


@pytest.mark.parametrize(
    ("duration", "seconds"), [(b"20ms", 0.02), (b"7.66s", 7.66), (b"6m0s", 360), (b"1h2m3s", 3723)]
)
def test_limits_have_anthropics_names_and_their_resets_are_dates(duration: bytes, seconds: float) -> None:
    before = datetime.now(UTC)
    given = [
        (b"content-type", b"application/json"),
        (b"x-request-id", b"mine"),
        (b"x-ratelimit-limit-requests", b"60"),
        (b"x-ratelimit-remaining-requests", b"59"),
        (b"x-ratelimit-reset-tokens", duration),
    ]
    own = dict(anthropic_headers(given))
    reset = datetime.fromisoformat(own.pop(b"anthropic-ratelimit-tokens-reset").decode())
    assert -1 <= (reset - before).total_seconds() - seconds < 60
    assert own == {
        b"request-id": b"mine",
        b"anthropic-ratelimit-requests-limit": b"60",
        b"anthropic-ratelimit-requests-remaining": b"59",
    }


def test_web_pages_may_read_the_headers_of_anthropics_names() -> None:
    own = {name.decode() for name, _ in anthropic_headers([(name.encode(), b"1s") for name in EXPOSED_HEADERS])}
    assert own
    assert own <= set(EXPOSED_HEADERS)
