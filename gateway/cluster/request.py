"""A request on its way from the ingress to a replica."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from starlette.types import Message, Scope

from gateway.middleware.caller import UNIQUE_ID, new_unique_id
from gateway.middleware.request_id import HEADER

Messages: TypeAlias = Sequence[Message]
"""ASGI messages of a response that were sent without a wait in between."""

_PARTS = ("type", "asgi", "http_version", "method", "scheme", "path", "raw_path", "query_string", "root_path", "client")


@dataclass(frozen=True, slots=True)
class ForwardedRequest:
    """A whole HTTP request. Its parts can be sent to another process."""

    scope: dict[str, Any]
    """ASGI scope, with plain values only."""
    body: bytes
    """Body of the request."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """First item of a forwarded response: a replica has the request."""

    replica: str
    """Id of the replica."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Choice of a replica for a request."""

    replica: str = ""
    """Id of the replica; empty for any."""
    only: bool = False
    """True if no other replica can answer. Such a request also has a place on a replica that is full."""
    router: str = ""
    """Name of the router that counts the request, among those of all ingresses; empty if none does."""


RESERVED = 8
"""Places of a replica for requests that only it can answer, such as those for its metrics."""
ANYWHERE = Placement()
"""Any replica, one with few requests."""


def forwarded(scope: Scope, body: bytes, request_id: str) -> ForwardedRequest:
    """Return a request for another process. It keeps its id there, and has one unique id on all replicas."""
    headers = [(name, value) for name, value in scope["headers"] if name.lower() != HEADER]
    parts = {name: scope[name] for name in _PARTS if name in scope}
    headers.append((HEADER, request_id.encode()))
    return ForwardedRequest({**parts, "headers": headers, UNIQUE_ID: new_unique_id()}, body)
