"""Access log: one line for each request. It has no prompt, no output, and no query.

A second line has the bodies of the request and the response, if the operator asked for them.
"""

import logging
from collections.abc import Mapping
from dataclasses import asdict

from gateway.middleware.exchange import QUIET_PATHS, Content, Exchange

logger = logging.getLogger("gateway.access")
content_logger = logging.getLogger("gateway.content")

ENDED = "request ended"
"""Message of the line of a request."""


def log_exchange(exchange: Exchange, figures: Mapping[str, object]) -> None:
    """Write the line of an exchange that has ended.

    Args:
        exchange: The exchange.
        figures: Further fields. They replace equal ones of the exchange.
    """
    level = _level(exchange)
    if logger.isEnabledFor(level):
        logger.log(level, ENDED, extra={**_fields(exchange), **figures})


def log_content(exchange: Exchange, content: Content) -> None:
    """Write the bodies of a request and its response."""
    level = _level(exchange)
    if content_logger.isEnabledFor(level):
        bodies = {name: body.decode(errors="replace") for name, body in asdict(content).items()}
        content_logger.log(level, "request content", extra={"request_id": exchange.request_id, **bodies})


def milliseconds(begin: float, end: float | None) -> float | None:
    """Return the time between two moments in milliseconds; None if the second one never came."""
    return None if end is None else round((end - begin) * 1000, 1)


def _level(exchange: Exchange) -> int:
    return logging.DEBUG if exchange.path in QUIET_PATHS else logging.INFO


def _fields(exchange: Exchange) -> dict[str, object]:
    return {
        "request_id": exchange.request_id,
        "trace_id": exchange.trace_id,
        "client": exchange.address or None,
        "key": exchange.key or None,
        "method": exchange.method or None,
        "path": exchange.path or None,
        "status": exchange.status,
        "outcome": exchange.outcome,
        "cause": exchange.error or None,
        "total_ms": milliseconds(exchange.began_at, exchange.ended_at),
        "bytes_in": exchange.received,
        "bytes_out": exchange.sent,
    }
