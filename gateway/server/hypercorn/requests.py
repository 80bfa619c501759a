"""Requests of one connection, each in a task: the part of Hypercorn's task group that HTTP/1.1 uses."""

import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeAlias

import anyio
from anyio import from_thread, to_thread
from anyio.abc import TaskGroup
from starlette.types import Message, Receive, Scope

from gateway.middleware.caller import SHUTDOWN
from gateway.middleware.disconnect import EXTENSION
from gateway.server.hypercorn.inbox import Inbox
from gateway.server.hypercorn.wire import Wire
from gateway.server.limits import ServerLimits

logger = logging.getLogger(__name__)

HANG_UP_LOOK = 1.0
"""Seconds between two looks for a hang-up behind bytes that the application leaves unread."""


Application: TypeAlias = Callable[
    [Scope, Receive, Callable[[Any], Awaitable[None]], Callable[..., Any], Callable[..., Any]], Awaitable[None]
]
"""ASGI application as Hypercorn wraps it, which also takes functions that run others in a thread, and from there."""


class Requests:
    """Runner of one connection's requests in its task group, with an inbox for each.

    Hypercorn sends `http.disconnect` at the end of a stream, whatever its cause. Here the message also carries a
    `reason`, unless it only follows a complete response, and `shutdown: True` if the client can still receive an
    error.
    """

    def __init__(self, tasks: TaskGroup, wire: Wire, limits: ServerLimits) -> None:
        self._tasks = tasks
        self._wire = wire
        self._limits = limits
        self._inboxes: set[Inbox] = set()

    def spawn(self, func: Callable[..., Coroutine[Any, Any, object]], *args: object) -> None:
        """Start `func(*args)` in the task group of the requests."""
        self._tasks.start_soon(func, *args)

    async def spawn_app(
        self, app: Application, _config: object, scope: Scope, send: Callable[[Any], Awaitable[None]]
    ) -> Callable[[Message], Awaitable[None]]:
        """Start `app` on a request and return the function that adds messages to its inbox.

        That function waits while the inbox is full, so that the connection reads no further.
        """
        inbox = Inbox(self._limits.unread)
        self._inboxes.add(inbox)
        scope["extensions"][EXTENSION] = inbox
        self.spawn(self._run, app, scope, inbox, send)

        async def put(message: Message) -> None:
            if message["type"] == "http.disconnect" and self._wire.reason:
                message = {**message, "reason": self._wire.reason}
            inbox.put(message)
            if inbox.is_full:
                await self._wait_until_drained(inbox)

        return put

    async def _wait_until_drained(self, inbox: Inbox) -> None:
        with anyio.move_on_after(self._limits.unread_timeout) as timeout:
            while inbox.is_full and not self._wire.has_hung_up():
                with anyio.move_on_after(HANG_UP_LOOK):
                    await inbox.drained()
        if timeout.cancelled_caught:
            self._wire.abort("the application did not read the body")

    async def _run(self, app: Application, scope: Scope, inbox: Inbox, send: Callable[[Any], Awaitable[None]]) -> None:
        try:
            await app(scope, inbox.get, send, to_thread.run_sync, from_thread.run)
        except* Exception as group:
            failure = group.exceptions[0] if len(group.exceptions) == 1 else group
            logger.exception("%s %s failed", scope["method"], scope["path"], exc_info=failure)
        finally:
            self._inboxes.discard(inbox)
        await send(None)  # Hypercorn's sign that the application ended: an incomplete response closes the connection

    def cancel_all(self) -> None:
        """Ask every running request to end while its client can still receive an error."""
        for inbox in self._inboxes:
            inbox.put({"type": "http.disconnect", "reason": SHUTDOWN, "shutdown": True})
