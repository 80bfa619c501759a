"""Who ended a request before its response was complete, and why."""

from dataclasses import dataclass
from typing import cast

from starlette.types import Message, Scope

from engine.errors import Unavailable


@dataclass(slots=True)
class Closing:
    """Empty while a request goes on; filled before its scope is cancelled.

    Attributes:
        reason: for the log: who closed it and why.
        error: what the client is told, if it can still listen; None if it is gone.
    """

    reason: str = ""
    error: Exception | None = None


def closing_of(scope: Scope) -> Closing:
    """The record that `RequestScope` keeps for the request of an ASGI scope."""
    return cast("Closing", scope["state"]["closing"])


def read_disconnect(message: Message) -> tuple[str, Exception | None]:
    """What an `http.disconnect` says, as a reason and an error. Our server adds `reason` and `shutdown` to it."""
    reason = message.get("reason", "client closed the connection")
    error = Unavailable("The server is shutting down.", code="shutting_down") if message.get("shutdown") else None
    return reason, error
