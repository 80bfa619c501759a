"""The requests of one connection, each a task: the part of Hypercorn's task group that HTTP/1.1 uses."""

import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

from anyio import from_thread, to_thread
from anyio.abc import TaskGroup
from starlette.types import Message, Receive, Scope

from gateway.server.hypercorn.inbox import Inbox

logger = logging.getLogger(__name__)

SHUTDOWN = "the server is shutting down"


class Owner(Protocol):
    """What requests need of their connection."""

    reason: str
    """Why it is over; empty while it is not."""

    def abort(self, reason: str) -> None:
        """End the connection at once."""


class Application(Protocol):
    """An ASGI application as Hypercorn wraps it."""

    async def __call__(
        self,
        scope: Scope,
        receive: Receive,
        send: Callable[[Any], Awaitable[None]],
        sync_spawn: Callable[..., Any],
        call_soon: Callable[..., Any],
    ) -> None:
        """Run one request."""


class Requests:
    """Runs the requests of one connection in its task group and keeps their inboxes.

    Hypercorn says `http.disconnect` when a stream is over, for whatever cause. Here the message also carries a
    `reason` unless it only follows a complete response, and `shutdown: True` where the client can still listen.
    """

    def __init__(self, tasks: TaskGroup, owner: Owner, unread_limit: int) -> None:
        self._tasks = tasks
        self._owner = owner
        self._unread_limit = unread_limit
        self._inboxes: set[Inbox] = set()

    def spawn(self, func: Callable[..., Coroutine[Any, Any, object]], *args: object) -> None:
        """Start `func(*args)` beside the requests."""
        self._tasks.start_soon(func, *args)

    async def spawn_app(
        self, app: Application, _config: object, scope: Scope, send: Callable[[Any], Awaitable[None]]
    ) -> Callable[[Message], Awaitable[None]]:
        """Start `app` on a request; returns what its `receive` is fed through."""
        inbox = Inbox()
        self._inboxes.add(inbox)
        self.spawn(self._run, app, scope, inbox, send)

        async def put(message: Message) -> None:
            if message["type"] == "http.disconnect" and self._owner.reason:
                message = {**message, "reason": self._owner.reason}
            inbox.put(message)
            if inbox.unread > self._unread_limit:
                self._owner.abort("the application did not read the body")

        return put

    async def _run(self, app: Application, scope: Scope, inbox: Inbox, send: Callable[[Any], Awaitable[None]]) -> None:
        try:
            await app(scope, inbox.get, send, to_thread.run_sync, from_thread.run)
        except* Exception as group:
            failure = group.exceptions[0] if len(group.exceptions) == 1 else group
            logger.exception("%s %s failed", scope["method"], scope["path"], exc_info=failure)
        finally:
            self._inboxes.discard(inbox)
        await send(None)  # Hypercorn's mark of the end: an incomplete response closes the connection

    def cancel_all(self) -> None:
        """Ask every running request to end, while its client can still be told so."""
        for inbox in self._inboxes:
            inbox.put({"type": "http.disconnect", "reason": SHUTDOWN, "shutdown": True})
