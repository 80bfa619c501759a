"""Interpretation of ASGI's `http.disconnect`, and the early news of it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeAlias

from anyio.abc import TaskGroup
from starlette.types import Message, Receive, Scope

from engine.errors import shutting_down
from gateway.middleware.caller import Cause, Closing
from gateway.middleware.errors import RefusedError, protocol_problem
from gateway.middleware.patience import STALLED

EXTENSION = "llama_gateway.arrivals"
"""ASGI extension of the gateway's own server, an `Arrivals`."""

OnDisconnect: TypeAlias = Callable[[Message], object]
"""Called with an `http.disconnect`. It must not wait."""


class Arrivals(Protocol):
    """Parts of a request that have arrived, without a wait. Other servers have only ASGI's `receive`, which waits."""

    def on_disconnect(self, call: OnDisconnect) -> None:
        """Call a function at each disconnect, also while body messages before it are unread. The latest one counts."""

    def take_body(self, limit: int) -> bytes | None:
        """Return the whole body, and remove it from `receive`.

        Returns None if a part of it is missing, if it is larger than `limit`, or if the client has left.
        """


def arrivals_of(scope: Scope) -> Arrivals | None:
    """Return the server's extension, or None if the server has none."""
    found: Arrivals | None = scope.get("extensions", {}).get(EXTENSION)
    return found


@contextmanager
def calling_on_disconnect(scope: Scope, receive: Receive, call: OnDisconnect, tasks: TaskGroup) -> Iterator[None]:
    """Call a function at each disconnect inside the context, which owns `receive`.

    Without the extension, a task that the caller must cancel afterwards waits for the disconnect, and calls only once.
    """
    arrivals = arrivals_of(scope)
    if arrivals is None:

        async def watch() -> None:
            call(await wait_for_disconnect(receive))

        tasks.start_soon(watch)
        yield
        return
    arrivals.on_disconnect(call)
    try:
        yield
    finally:
        arrivals.on_disconnect(_ignore)


def _ignore(_message: Message) -> None:
    """Do nothing, after the request has ended."""


async def wait_for_disconnect(receive: Receive) -> Message:
    """Drop all messages before the `http.disconnect`, and return it."""
    while (message := await receive())["type"] != "http.disconnect":
        pass
    return message


def read_disconnect(message: Message) -> Closing:
    """Return the reason of an `http.disconnect`, and the error for a client that still listens.

    The gateway's own server adds `reason` to the message, and `shutdown`, or the `status` for a malformed body.
    """
    reason = message.get("reason", "client closed the connection")
    if message.get("shutdown"):
        return Closing(reason, Cause.SHUTDOWN, shutting_down())
    if status := message.get("status"):
        return Closing(reason, Cause.CLIENT_LEFT, RefusedError(protocol_problem(status)))
    return Closing(reason, Cause.SLOW_READER if reason == STALLED else Cause.CLIENT_LEFT)
