"""Figures of a request's record, as fields of log lines."""

from gateway.middleware.access_log import logger, milliseconds
from gateway.middleware.exchange import Exchange
from gateway.serving.records import RequestRecord

BACKGROUND_ENDED = "background response ended"
"""Message of the line of a background response, which comes after that of its request."""


def figures_of(record: RequestRecord) -> dict[str, object]:
    """Return the fields of a record. One that has not ended is a background response, which gets another line."""
    if record.outcome is None:
        return {"model": record.model, "background": True}
    begun = record.started_at if record.started_at is not None else record.ended_at
    figures: dict[str, object] = {
        "model": record.model,
        "stream": record.stream,
        "prompt_tokens": record.prompt_tokens,
        "cached_tokens": record.cached_tokens,
        "completion_tokens": record.completion_tokens,
        "wasted_tokens": record.wasted_tokens or None,
        "queue_ms": milliseconds(record.arrived_at, begun) if record.operation.generates else None,
        "first_token_ms": milliseconds(record.arrived_at, record.first_token_at),
        "release_ms": None if record.release_seconds is None else round(record.release_seconds * 1000, 1),
        "outcome": record.outcome.value,
        "phase": record.phase or None,
    }
    return figures | ({"cause": record.cause} if record.cause else {})


def log_background(exchange: Exchange, record: RequestRecord) -> None:
    """Write the line of a background response that has ended."""
    fields = {
        "request_id": exchange.request_id,
        "trace_id": exchange.trace_id,
        "client": exchange.address or None,
        "key": exchange.key or None,
        **figures_of(record),
        "total_ms": milliseconds(record.arrived_at, record.ended_at),
    }
    logger.info(BACKGROUND_ENDED, extra=fields)
