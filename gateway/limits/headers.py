"""Headers `x-ratelimit-*` on every response to a key with limits per minute, as OpenAI sends them."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.keys.key import Key
from gateway.limits.bucket import Bucket
from gateway.limits.limiter import Limiter
from gateway.limits.moment import NANOSECONDS
from gateway.middleware.caller import caller_of

_SECOND, _MINUTE = 1000, 60_000
"""Milliseconds."""


class RateLimitHeaders:
    """Middleware that adds the headers when the response begins, so that they count the request itself.

    A caller without limits per minute gets none of them: there is no limit that they could name. A limit of
    concurrent requests and the budgets have no such headers.
    """

    def __init__(self, app: ASGIApp, limiter: Limiter) -> None:
        """Wrap an application.

        Args:
            app: serves the requests, inside `RequestScope` and the authentication.
            limiter: counts the requests.
        """
        self._app = app
        self._limiter = limiter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        caller = caller_of(scope)
        if (key := caller.key) is None:
            await self._app(scope, receive, send)
            return
        headers = caller.reply_headers

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers.extend(rate_limit_headers(key, self._limiter))
            await send(message)

        try:
            await self._app(scope, receive, send_with_headers)
        except BaseException:
            headers.extend(rate_limit_headers(key, self._limiter))  # for the error response, if no head was sent
            raise


def rate_limit_headers(key: Key, limiter: Limiter) -> list[tuple[bytes, bytes]]:
    """Return the headers for the limits per minute of a key."""
    rates, tick = limiter.rates(key.id), limiter.clock().tick
    return [
        *_headers(b"requests", rates.requests, key.limits.requests_per_minute, tick),
        *_headers(b"tokens", rates.tokens, key.limits.tokens_per_minute, tick),
    ]


def _headers(unit: bytes, bucket: Bucket, limit: int | None, tick: int) -> list[tuple[bytes, bytes]]:
    if limit is None:
        return []
    return [
        (b"x-ratelimit-limit-" + unit, b"%d" % limit),
        (b"x-ratelimit-remaining-" + unit, b"%d" % bucket.remaining(limit, tick)),
        (b"x-ratelimit-reset-" + unit, duration(bucket.reset(limit, tick)).encode()),
    ]


def duration(nanoseconds: int) -> str:
    """Return a time as OpenAI writes it, rounded up to milliseconds: `20ms`, `1s`, `7.66s`, `6m0s`, `1h2m3s`."""
    milliseconds = -(-nanoseconds * _SECOND // NANOSECONDS)
    if milliseconds < _SECOND:
        return f"{milliseconds}ms"
    minutes, rest = divmod(milliseconds, _MINUTE)
    seconds = f"{rest / _SECOND:g}s"
    if not minutes:
        return seconds
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes}m{seconds}" if hours else f"{minutes}m{seconds}"
