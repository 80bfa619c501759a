"""Interpretation of ASGI's `http.disconnect`."""

from starlette.types import Message

from engine.errors import Unavailable


def read_disconnect(message: Message) -> tuple[str, Exception | None]:
    """Return the reason of an `http.disconnect`, and the error for a client that still listens.

    The gateway's own server adds `reason` and `shutdown` to the message.
    """
    reason = message.get("reason", "client closed the connection")
    error = Unavailable("The server is shutting down.", code="shutting_down") if message.get("shutdown") else None
    return reason, error
