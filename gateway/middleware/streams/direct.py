"""Short way of a streamed event to its client: without the wake-up of the request's task, and past ASGI's `send`.

The task of a request sleeps while its client keeps up. It wakes up for the first and the last events, for silences, and
for a client that is slow, which only a task can wait for.
"""

from collections.abc import Awaitable, Iterable
from typing import Protocol, runtime_checkable

from starlette.types import Scope

EXTENSION = "llama_gateway.direct_send"
"""ASGI extension of the gateway's own server, a `DirectSend`."""


class DirectSend(Protocol):
    """Sends parts of a response's body at once. Other servers have only ASGI's `send`, which waits."""

    @property
    def ready(self) -> bool:
        """True if the head of the response was sent, and the client has taken all bytes behind it."""

    def offer(self, data: bytes) -> None:
        """Send a part of the body that is not its end. Call it only if it is `ready`. Never waits, never raises."""


class Sink(Protocol):
    """Takes events of a stream that need not wait."""

    @property
    def ready(self) -> bool:
        """True if it takes events now."""

    def send(self, pieces: Iterable[bytes]) -> None:
        """Send whole events. Call it only if it is `ready`. Never waits. Raises what encoding the pieces raises."""


@runtime_checkable
class DirectEvents(Protocol):
    """Events, as `NextEvents`, that come at once while a task waits for them."""

    def __call__(self) -> Awaitable[Iterable[bytes]]:
        """Wait for events and return all that are ready."""

    def pass_on(self, sink: Sink) -> None:
        """Send events through a sink while a task waits for them and the sink is ready, instead of waking the task."""


def direct_send_of(scope: Scope) -> DirectSend | None:
    """Return the server's extension, or None if the server has none."""
    found: DirectSend | None = scope.get("extensions", {}).get(EXTENSION)
    return found
