"""Limits of one request, in bytes and seconds."""

from dataclasses import dataclass

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLimits:
    """Limits of one request."""

    body: int = 8 * MIB
    """Maximum bytes of the body. A larger body is answered with 413."""
    body_timeout: float = 30.0
    """Seconds for the whole body. A slower body is answered with 408."""
    memory_timeout: float = 30.0
    """Seconds for which a body may wait for the memory of others. A longer wait is answered with 503."""
    request_timeout: float | None = None
    """Seconds from the head to the last byte of the response, including the body. None sets no limit.

    A slower request is answered with 504.
    """
