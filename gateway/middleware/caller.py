"""The caller of a request: identity, limits, and why the request closes early."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import cast

from starlette.types import Scope

from gateway.middleware.errors import EncodeError, encode_error

_KEY = "llama_gateway.caller"


@dataclass(slots=True)
class Closing:
    """Why a request is left before its response is complete. Empty while it goes on; filled before it is cancelled."""

    reason: str = ""
    """Who closed it and why, for the log."""
    error: Exception | None = None
    """What the client gets if it still listens; None if it is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who sent a request and on which terms. Made once, by `RequestScope`."""

    request_id: str
    """Follows the request through headers and logs."""
    credentials: str = ""
    """Digest of the `Authorization` headers, the same for the same credentials."""
    cache_partition: str = ""
    """Requests share cached prompts only within a partition."""
    deadline: float = float("inf")
    """When the response must be complete, on the event loop's clock."""
    encode_error: EncodeError = encode_error
    """The error shape of the API that the request's path belongs to."""
    closing: Closing = field(default_factory=Closing)
    """Why the request closes early."""
    reply_headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    """Headers that every response to the request carries. May be added to until the response begins."""

    def why(self) -> str:
        """Return the reason for leaving the request's work unfinished."""
        return self.closing.reason or "the request failed"


def caller_of(scope: Scope) -> Caller:
    """Return the caller that `RequestScope` has put into an ASGI scope."""
    return cast("Caller", scope[_KEY])


def with_caller(scope: Scope, caller: Caller) -> Scope:
    """Return a copy of an ASGI scope that carries `caller`."""
    return {**scope, _KEY: caller}


def digest_of_credentials(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """Return a digest of all `Authorization` headers, so that no other part of the program sees the credentials."""
    given = b"\n".join(value for name, value in headers if name.lower() == b"authorization")
    return blake2b(given, digest_size=16).hexdigest()
