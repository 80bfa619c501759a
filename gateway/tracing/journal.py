"""Journal of all requests: joins the HTTP side of each with its use of the engine, and writes both at the end."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from typing_extensions import override

from gateway.middleware.access_log import log_content, log_exchange
from gateway.middleware.exchange import Exchange, ExchangeObserver, Headers
from gateway.serving.records import RequestRecord
from gateway.tracing.figures import figures_of, log_background

logger = logging.getLogger(__name__)


class SpanWriter(Protocol):
    """Interface of what makes the spans of a request."""

    def begin(self, exchange: Exchange, headers: Headers) -> Headers:
        """Begin the span of an exchange. Returns headers for its response."""

    def end(self, exchange: Exchange, record: RequestRecord | None) -> None:
        """Complete the span of an exchange that has ended."""

    def end_background(self, exchange: Exchange, record: RequestRecord) -> None:
        """Write the spans of a request that ended after its exchange."""


class Journal(ExchangeObserver):
    """Writes the access line and the spans of each request.

    An exchange has one record at most, because each route sends one request to the engine. The record of a background
    response ends after its exchange, and gets a line and spans of its own.
    """

    def __init__(self, spans: SpanWriter | None = None, *, keeps_content: bool = False) -> None:
        """Create a journal.

        Args:
            spans: Makes spans; unset if there are no traces.
            keeps_content: Write the beginning of each body into the log.
        """
        self.keeps_content = keeps_content
        self._spans = spans
        self._records: dict[Exchange, RequestRecord] = {}

    def record(self, record: RequestRecord) -> None:
        """Note the begin or the end of a request to the engine, as a `RecordObserver`."""
        exchange = record.caller.exchange
        if exchange.ended_at is None:
            self._records[exchange] = record
        elif record.outcome is not None:
            self._records.pop(exchange, None)
            self._end_background(exchange, record)

    @override
    def begin(self, exchange: Exchange, headers: Headers) -> Headers:
        if self._spans is not None:
            with _failures_logged():
                return self._spans.begin(exchange, headers)
        return ()

    @override
    def end(self, exchange: Exchange) -> None:
        record = self._records.get(exchange)
        if record is not None and record.outcome is not None:
            del self._records[exchange]
        with _failures_logged():
            log_exchange(exchange, {} if record is None else figures_of(record))
            if exchange.content is not None:
                log_content(exchange, exchange.content)
            if self._spans is not None:
                self._spans.end(exchange, record)

    def _end_background(self, exchange: Exchange, record: RequestRecord) -> None:
        with _failures_logged():
            log_background(exchange, record)
            if self._spans is not None:
                self._spans.end_background(exchange, record)


@contextmanager
def _failures_logged() -> Iterator[None]:
    """Log an exception and go on: no request fails because it cannot be logged."""
    try:
        yield
    except Exception:
        logger.exception("a request could not be logged")
