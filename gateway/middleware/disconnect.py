"""Interpretation of ASGI's `http.disconnect`."""

from starlette.types import Message

from engine.errors import Unavailable
from gateway.middleware.caller import Cause, Closing


def read_disconnect(message: Message) -> Closing:
    """Return the reason of an `http.disconnect`, and the error for a client that still listens.

    The gateway's own server adds `reason` and `shutdown` to the message.
    """
    reason = message.get("reason", "client closed the connection")
    if message.get("shutdown"):
        return Closing(reason, Cause.SHUTDOWN, Unavailable("The server is shutting down.", code="shutting_down"))
    return Closing(reason, Cause.CLIENT_LEFT)
