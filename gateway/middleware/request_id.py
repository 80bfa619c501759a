"""Ids of requests in headers and logs."""

import uuid
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar

from engine.logs import current_model

HEADER = b"x-request-id"
MAX_LENGTH = 128
"""Maximum characters of an id that the client chooses."""

current_request_id: ContextVar[str | None] = ContextVar("request_id", default=None)
"""Id of the request that the current task serves; None outside a request."""
current_trace_id: ContextVar[str | None] = ContextVar("trace_id", default=None)
"""Id of that request's trace; unset without traces."""
LOG_FIELDS: Mapping[str, Callable[[], str | None]] = {
    "request_id": current_request_id.get,
    "trace_id": current_trace_id.get,
    "model": current_model.get,
}
"""Fields of every line of the log that does not set them itself."""


def new_request_id() -> str:
    """Return a new id."""
    return f"req_{uuid.uuid4().hex}"


def request_id_from(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """Return the client's own id if it has 1 to 128 printable ASCII characters, else a new id."""
    for name, value in headers:
        if name.lower() == HEADER:
            given = value.decode("latin-1").strip()
            if given and len(given) <= MAX_LENGTH and given.isascii() and given.isprintable():
                return given
    return new_request_id()
