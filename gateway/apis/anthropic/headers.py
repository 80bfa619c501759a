"""Anthropic's names of response headers."""

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

from gateway.middleware.conventions import Header
from gateway.middleware.request_id import HEADER as REQUEST_ID

_LIMITS = b"x-ratelimit-"
_RESET = b"reset"
_DURATION = re.compile(rb"(?:(?P<hours>\d+)h)?(?:(?P<minutes>\d+)m)?(?:(?P<seconds>[\d.]+)s)?")
"""OpenAI's notation of times of a second and more."""
_MILLISECONDS = b"ms"


def anthropic_headers(headers: Sequence[Header]) -> Iterator[Header]:
    """Yield the request's id and the limits of its key under Anthropic's names. The times of limits are dates."""
    for name, value in headers:
        if name == REQUEST_ID:
            yield b"request-id", value
        elif name.startswith(_LIMITS):
            kind, _, unit = name.removeprefix(_LIMITS).partition(b"-")
            yield b"anthropic-ratelimit-%b-%b" % (unit, kind), _date(value) if kind == _RESET else value


def _date(duration: bytes) -> bytes:
    reset = datetime.now(UTC) + _delta(duration)
    return reset.isoformat(timespec="seconds").replace("+00:00", "Z").encode()


def _delta(duration: bytes) -> timedelta:
    if duration.endswith(_MILLISECONDS):
        return timedelta(milliseconds=int(duration.removesuffix(_MILLISECONDS)))
    found = _DURATION.fullmatch(duration)
    return timedelta(**{unit: float(count) for unit, count in found.groupdict(b"0").items()}) if found else timedelta()
