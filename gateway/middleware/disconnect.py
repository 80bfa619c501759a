"""Interpretation of ASGI's `http.disconnect`, and the early news of it."""

from collections.abc import Callable
from typing import TypeAlias

from starlette.types import Message, Receive, Scope

from engine.errors import Unavailable
from gateway.middleware.caller import Cause, Closing

EXTENSION = "llama_gateway.on_disconnect"
"""ASGI extension of the gateway's own server, an `OnDisconnect`."""

OnDisconnect: TypeAlias = Callable[[Callable[[], object]], None]
"""Takes a function to call at the disconnect, also while body messages before it are unread. The latest one counts."""


def on_disconnect_of(scope: Scope) -> OnDisconnect:
    """Return the server's extension, or one that never calls if the server has none."""
    found: OnDisconnect = scope.get("extensions", {}).get(EXTENSION, lambda _call: None)
    return found


async def wait_for_disconnect(receive: Receive) -> Closing:
    """Drop all messages before the `http.disconnect`, and read it as `read_disconnect` does."""
    while (message := await receive())["type"] != "http.disconnect":
        pass
    return read_disconnect(message)


def read_disconnect(message: Message) -> Closing:
    """Return the reason of an `http.disconnect`, and the error for a client that still listens.

    The gateway's own server adds `reason` and `shutdown` to the message.
    """
    reason = message.get("reason", "client closed the connection")
    if message.get("shutdown"):
        return Closing(reason, Cause.SHUTDOWN, Unavailable("The server is shutting down.", code="shutting_down"))
    return Closing(reason, Cause.CLIENT_LEFT)
