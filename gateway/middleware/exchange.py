"""One HTTP exchange, for the access log and for traces: a request's line, its response, and its times."""

from collections.abc import Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Protocol, TypeAlias

Headers: TypeAlias = Iterable[tuple[bytes, bytes]]

PROBES = frozenset({"/health", "/v1/health", "/livez", "/readyz", "/ping"})
"""Paths by which orchestrators ask for the state of the server."""
QUIET_PATHS = PROBES | {"/metrics"}
"""Paths that programs ask every few seconds. They have a line at the level `debug` only, and no span. Nor are they
counted, as in vLLM: their 503 is an answer, not a failure."""
MAX_NAME = 256
"""Maximum characters of a path or a method that is kept. A head may have 64 KiB of them."""


MAX_CONTENT = 64 * 1024
"""Maximum bytes of a body in the log, if bodies are logged at all."""


@dataclass(slots=True)
class Content:
    """Bodies of a request and its response, up to `MAX_CONTENT` bytes of each."""

    request: bytes = b""
    """Beginning of the request's body."""
    response: bytes = b""
    """Beginning of the response's body."""


@dataclass(slots=True, kw_only=True, eq=False)
class Exchange:
    """One request and its response, as HTTP sees them. Two of them are never equal."""

    request_id: str = ""
    """Id of the request in headers and logs."""
    method: str = ""
    """Method of the request; empty if the request could not be read so far."""
    path: str = ""
    """Path of the request, without its query, which may have secrets."""
    route: str = ""
    """Path of the endpoint, with its parameters in braces; empty if no endpoint was found."""
    scheme: str = "http"
    """Scheme of the request: `http` or `https`."""
    address: str = ""
    """Address of the client, or its user over a Unix socket; empty if it is unknown."""
    key: str = ""
    """Public id of the API key; empty without one."""
    trace_id: str | None = None
    """Id of the request's trace; unset without traces."""
    sampled: bool = False
    """True if the trace is sent, so that others can find it."""
    began_at: float = 0.0
    """Time of the complete head, in seconds by the event loop's clock."""
    began_ns: int = 0
    """The same moment in nanoseconds since 1970."""
    ended_at: float | None = None
    """Time of the end; unset while the exchange lasts."""
    status: int | None = None
    """Status of the response; unset until its head is sent."""
    error: str = ""
    """Code of the error or cause of the cancel that ended the exchange. Empty after a success."""
    cancelled: bool = False
    """True if the client left, the deadline passed or the server stopped before the response was complete."""
    received: int = 0
    """Bytes of the request's body that were read."""
    sent: int = 0
    """Bytes of the response's body that were sent."""
    content: Content | None = None
    """The bodies, if the operator wants them in the log."""

    def count_sent(self, data: bytes) -> None:
        """Count bytes of the response's body. The server sends none to HEAD."""
        if self.method == "HEAD":
            return
        self.sent += len(data)
        if self.content is not None:
            self.content.response += data[: MAX_CONTENT - len(self.content.response)]

    @property
    def outcome(self) -> str:
        """Outcome as far as HTTP knows it, by the names of `gateway.serving.records.Outcome`."""
        if self.status is None or self.cancelled:
            return "cancelled"
        if self.status == HTTPStatus.INTERNAL_SERVER_ERROR or (self.error and self.status < HTTPStatus.BAD_REQUEST):
            return "failed"
        return "refused" if self.status >= HTTPStatus.BAD_REQUEST else "finished"

    def nanoseconds(self, at: float) -> int:
        """Return a time of the event loop's clock in nanoseconds since 1970."""
        return self.began_ns + round((at - self.began_at) * 1e9)


class ExchangeObserver(Protocol):
    """Interface of what follows every exchange. Its methods run in the event loop and must be short."""

    keeps_content: bool
    """True to keep the beginning of each body with its exchange."""

    def begin(self, exchange: Exchange, headers: Headers) -> Headers:
        """Note the begin of an exchange with these request headers. Returns headers for its response."""

    def end(self, exchange: Exchange) -> None:
        """Note the end of an exchange: no field of it changes any more."""
