"""Caller of a request: its identity, its limits, and the reason for closing the request early."""

import math
import secrets
from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from enum import StrEnum
from hashlib import blake2b
from itertools import count
from typing import cast

import anyio
from starlette.types import Scope

from gateway.keys.key import Key
from gateway.middleware.body_budget import Body
from gateway.middleware.conventions import OPENAI, Conventions
from gateway.middleware.errors import DEADLINE_PASSED, RefusedError
from gateway.middleware.exchange import Exchange
from gateway.middleware.streams.direct import DirectSend
from gateway.middleware.streams.silence import Silences

_KEY = "llama_gateway.caller"
UNIQUE_ID = "llama_gateway.unique_id"
"""Key of an ASGI scope: the unique id of the request, if another process has given it one."""
CREDENTIALS = frozenset({b"authorization", b"x-api-key"})
"""Headers by which clients of OpenAI's API and of Anthropic's authenticate."""
NO_CREDENTIALS = blake2b(b"", digest_size=16).hexdigest()
"""Digest for a request without these headers."""
SHUTDOWN = "the server is shutting down"
"""Reason for ending requests when the server stops, for the log."""
OVERDUE = "the request's deadline passed"
"""Reason for ending a request at its time limit, for the log."""


class Cause(StrEnum):
    """Cause of ending a request early, for programs."""

    CLIENT_LEFT = "client_left"
    """The client closed its connection."""
    CLIENT_CANCELLED = "client_cancelled"
    """The client cancelled its background response, or ended its kept stream."""
    SLOW_READER = "slow_reader"
    """The client left text unread for too long."""
    DEADLINE = "deadline"
    """The time limit of a request passed."""
    QUEUE_TIMEOUT = "queue_timeout"
    """The time limit of the queue passed."""
    SHUTDOWN = "shutdown"
    """The server stopped."""
    CANCELLED = "cancelled"
    """This server ended the work for another reason."""


@dataclass(slots=True)
class Closing:
    """Reason for ending a request before its response is complete.

    It is set before the request is cancelled, except after the deadline: `Caller.closed` returns it in both cases.
    """

    reason: str = ""
    """Side that closed the request, and the reason, for the log. Empty while the request runs."""
    cause: Cause | None = None
    """The same for programs; unset while the request runs."""
    error: Exception | None = None
    """Error for a client that still listens; unset if the client is gone."""
    deadline: float = math.inf
    """Time by the event loop's clock at which the request is cancelled. Infinite once the response is complete."""
    work: anyio.CancelScope | None = field(default=None, repr=False)
    """Scope of the request's work, which ends at the deadline."""

    def lift_deadline(self) -> None:
        """Let the request go on past its deadline."""
        self.deadline = math.inf
        if self.work is not None:
            self.work.deadline = math.inf

    def set(self, other: "Closing") -> None:
        """Take the reason of another one."""
        self.reason, self.cause, self.error = other.reason, other.cause, other.error


def new_unique_id() -> str:
    """Return an id that no other request has."""
    return secrets.token_hex(16)


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Sender of a request and the terms of the request. `RequestScope` creates one for each request."""

    request_id: str
    """Id of the request in headers and logs."""
    credentials: str = ""
    """Owner of what the request stores: the key's id, or without a key the digest of the headers with credentials."""
    key: Key | None = None
    """API key of the request; unset on a server without keys, and on a path that needs none."""
    client: str = ""
    """Client that shares the engine fairly with others: its credentials, else the address of its connection."""
    cache_partition: str = ""
    """Partition of the prompt cache. Requests share cached prompts only within one partition."""
    deadline: float = float("inf")
    """Time on the event loop's clock at which the response must be complete."""
    conventions: Conventions = OPENAI
    """Conventions of the API that the request's path belongs to."""
    closing: Closing = field(default_factory=Closing)
    """Reason for closing the request early."""
    exchange: Exchange = field(default_factory=Exchange)
    """Request and response as HTTP sees them, for the access log and for traces."""
    body: Body = field(default_factory=Body)
    """Body of the request, until `release_body`."""
    held: ExitStack = field(default_factory=ExitStack)
    """Closed when the request has ended: holds its model in memory."""
    unique_id: str = field(default_factory=new_unique_id)
    """Unique id of the request, which no client can choose. It has the same one where it runs again because the first
    gateway has died, so that it counts once."""
    numbers: Iterator[int] = field(default_factory=count)
    """Numbers of its records. Their order is the same wherever the request runs."""
    reply_headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    """Headers of every response to the request. More can be added until the response begins."""
    direct: DirectSend | None = None
    """Sends parts of its response at once; unset if the server cannot."""
    silences: Silences = field(default_factory=Silences)
    """Ends the silences of its stream."""

    def identified(self, key: Key) -> "Caller":
        """Return this caller with an API key. Its identity is the key's id, which outlives a change of the secret."""
        partition = key.id if self.cache_partition else ""
        return replace(self, key=key, credentials=key.id, client=key.id, cache_partition=partition)

    def may_use(self, names: Collection[str]) -> bool:
        """Return True if the caller may use a model with these names."""
        return self.key is None or self.key.models is None or not self.key.models.isdisjoint(names)

    def release_body(self) -> None:
        """Drop the body's bytes and give their memory back to the other requests, once the engine has the request."""
        self.body.release()

    def closed(self) -> Closing:
        """Return the reason for closing the request early, once it is cancelled."""
        if not self.closing.reason and anyio.current_time() >= self.closing.deadline:
            self.closing.set(Closing(OVERDUE, Cause.DEADLINE, RefusedError(DEADLINE_PASSED)))
        return self.closing

    def why(self) -> str:
        """Return the reason for ending the request's work early."""
        return self.closed().reason or "the request failed"


def caller_of(scope: Scope) -> Caller:
    """Return the caller that `RequestScope` stored in an ASGI scope."""
    return cast("Caller", scope[_KEY])


def with_caller(scope: Scope, caller: Caller) -> Scope:
    """Return a copy of an ASGI scope that carries `caller`."""
    return {**scope, _KEY: caller}


def client_of(scope: Scope, credentials: str) -> str:
    """Return the name of the client: its credentials if it sent any, else the address of its connection.

    The address of a connection over a Unix socket is the user at its other end.
    """
    if credentials != NO_CREDENTIALS:
        return credentials
    address = scope.get("client")
    return address[0] if address else ""


def digest_of_credentials(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """Return a digest of all headers with credentials, so that no other part of the program sees them."""
    given = [value for name, value in headers if name.lower() in CREDENTIALS]
    return blake2b(b"\n".join(given), digest_size=16).hexdigest() if given else NO_CREDENTIALS
