"""Access lines of requests that no replica has. Replicas write those of all others."""

from typing_extensions import override

from gateway.middleware.access_log import log_exchange
from gateway.middleware.exchange import Exchange, ExchangeObserver, Headers


class IngressLog(ExchangeObserver):
    """Writes the line of each request that the ingress answers, refuses or loses, or whose client leaves it early."""

    keeps_content = False

    def __init__(self, *, writes: bool) -> None:
        """Write lines, or none."""
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
        if self._writes and (exchange not in self._accepted or lost):
            log_exchange(exchange, {})
        self._accepted.discard(exchange)
