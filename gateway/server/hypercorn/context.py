"""State that Hypercorn's protocol takes from its worker: the part that HTTP/1.1 uses."""

import sys
from typing import NoReturn

import anyio
from hypercorn.config import Config

from gateway.middleware.patience import Clock
from gateway.server.limits import ServerLimits
from gateway.server.places import Places
from gateway.server.turns import Turns


class PausedError(Exception):
    """h11 waits for the response to a request that asked for another protocol."""


class NonBlockingEvent:
    """Replacement for the event on which Hypercorn's reader waits while h11 is paused.

    Its `wait` raises instead, so that parsing stops and reading continues.
    """

    async def clear(self) -> None:
        """Do nothing, because there is no state to clear."""

    async def set(self) -> None:
        """Do nothing, because no task waits for the event."""

    async def wait(self) -> NoReturn:
        """Stop parsing without a wait.

        Raises:
            PausedError: Always.
        """
        raise PausedError


class ServerContext:
    """State that all connections share: the part of Hypercorn's worker context that HTTP/1.1 uses."""

    event_class = NonBlockingEvent
    """Class that Hypercorn instantiates for its reader's event."""

    def __init__(self, limits: ServerLimits, clock: Clock = anyio.current_time) -> None:
        self.limits = limits
        """Limits of the server and of each connection."""
        self.clock = clock
        """Clock by which the patience with clients is measured."""
        self.terminated = anyio.Event()
        """Set when the server shuts down. Connections then close after their response."""
        self.places = Places(limits.connections, limits.idle_grace)
        """Places of the connections."""
        self.turns = Turns()
        """Turns of the connections that upload a body or a large head."""
        self.handshakes = Turns()
        """Turns of the steps of TLS handshakes."""
        self.config = Config()
        """Hypercorn's configuration."""
        self.config.errorlog = None
        self.config.include_server_header = False
        self.config.keep_alive_max_requests = sys.maxsize  # no limit: only the client or the server ends a connection
        self.config.h11_max_incomplete_size = limits.head
