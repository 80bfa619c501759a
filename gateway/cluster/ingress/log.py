"""Access lines and counts of requests that no replica has. Replicas have those of all others."""

from typing_extensions import override

from gateway.metrics.server import ResponseCounts
from gateway.middleware.access_log import log_exchange
from gateway.middleware.exchange import QUIET_PATHS, Exchange, ExchangeObserver, Headers


class IngressLog(ExchangeObserver):
    """Follows each request that the ingress answers, refuses or loses, or whose client leaves it early."""

    keeps_content = False

    def __init__(self, *, writes: bool) -> None:
        """Write lines, or none."""
        self.responses = ResponseCounts()
        """Counts of the responses to these requests."""
        self._writes = writes
        self._accepted: set[Exchange] = set()

    def accept(self, exchange: Exchange) -> None:
        """Record that a replica has a request."""
        self._accepted.add(exchange)

    @override
    def begin(self, exchange: Exchange, headers: Headers) -> Headers:
        return ()

    @override
    def end(self, exchange: Exchange) -> None:
        lost = exchange.error and not exchange.cancelled
        if exchange not in self._accepted or lost:
            self._note(exchange)
        self._accepted.discard(exchange)

    def _note(self, exchange: Exchange) -> None:
        if exchange.status is not None and exchange.path not in QUIET_PATHS:
            self.responses.count(exchange.status)
        if self._writes:
            log_exchange(exchange, {})
