"""Limits of one request, in bytes and seconds."""

from dataclasses import dataclass

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLimits:
    """Limits of one request.

    Attributes:
        body: bytes; more is answered 413.
        body_timeout: seconds for the whole body; longer is answered 408.
        request_timeout: seconds from the head to the response's last byte, the body included; longer is answered 504.
            None sets no bound.
    """

    body: int = 8 * MIB
    body_timeout: float = 30.0
    request_timeout: float | None = None
