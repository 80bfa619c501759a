"""Metrics of the HTTP server."""

from collections import Counter
from collections.abc import Callable, Iterator

from prometheus_client.core import Metric
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.metrics.families import Family
from gateway.middleware.exchange import QUIET_PATHS

CLASSES = ("1xx", "2xx", "3xx", "4xx", "5xx")

_RESPONSES = Family(
    "http_requests",
    "Responses by the class of their status, without those to probes and to bytes that are no request.",
    ("status",),
)
_LAG = Family("llama_gateway_loop_lag_seconds", "Longest time in the last minute that the event loop was held up.", ())
_DRAINING = Family("llama_gateway_draining", "1 if the server is stopping and accepts no more connections.", ())


class ResponseCounts:
    """Counts of responses by the class of their status."""

    def __init__(self) -> None:
        self._counts = Counter(dict.fromkeys(CLASSES, 0))

    def count(self, status: int) -> None:
        """Count a response."""
        self._counts[CLASSES[status // 100 - 1]] += 1

    def collect(self) -> Iterator[Metric]:
        """Return the current values."""
        yield _RESPONSES.counter({(status,): count for status, count in self._counts.items()})


class CountedResponses:
    """ASGI middleware that counts responses. Outside all others, so that it sees every response."""

    def __init__(self, app: ASGIApp, counts: ResponseCounts) -> None:
        self._app = app
        self._counts = counts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["path"] in QUIET_PATHS:
            await self._app(scope, receive, send)
            return

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._counts.count(message["status"])
            await send(message)

        await self._app(scope, receive, counted)


class ServerMetrics:
    """State of the server, and the counts of its responses."""

    def __init__(self, lag: Callable[[], float], draining: Callable[[], bool]) -> None:
        """Create the metrics.

        Args:
            lag: Returns the event loop's notable lag in seconds; 0 without one.
            draining: Returns True once the server is stopping.
        """
        self._lag = lag
        self._draining = draining
        self.responses = ResponseCounts()
        """Counts of the responses."""

    def collect(self) -> Iterator[Metric]:
        """Return the current values."""
        yield from self.responses.collect()
        yield _LAG.gauge({(): self._lag()})
        yield _DRAINING.gauge({(): self._draining()})
