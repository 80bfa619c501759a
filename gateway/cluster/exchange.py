"""One request to an application on this event loop, whose response is read by another task."""

import asyncio
from collections.abc import AsyncIterator

from starlette.types import ASGIApp, Message

from gateway.cluster.request import ForwardedRequest, Messages

_running: set[asyncio.Task[None]] = set()
"""Requests that run. The event loop itself refers to its tasks only weakly."""


class Exchange:
    """A request that runs in a task of its own.

    The reader may stop at any moment. The application then sees a disconnect, as with any other server, and releases
    what it holds in its own task. Neither a cancellation nor the garbage collection of a generator is involved.
    """

    def __init__(self, app: ASGIApp, request: ForwardedRequest) -> None:
        """Start the request."""
        self._request = request
        self._messages: list[Message] = []
        self._ready = asyncio.Event()
        self._left = asyncio.Event()
        self._read = False
        self._task = asyncio.create_task(self._run(app))
        _running.add(self._task)
        self._task.add_done_callback(_running.discard)

    async def responses(self) -> AsyncIterator[Messages]:
        """Yield all messages that are ready, until the end of the response. Raises what the application raises."""
        while not self._task.done() or self._messages:
            await self._ready.wait()
            self._ready.clear()
            messages, self._messages = self._messages, []
            if messages:
                yield messages
        self._task.result()

    def leave(self) -> None:
        """Disconnect the client. A response that is complete does not notice it."""
        self._left.set()

    async def _run(self, app: ASGIApp) -> None:
        try:
            await app(dict(self._request.scope), self._receive, self._send)
        finally:
            self._ready.set()

    async def _receive(self) -> Message:
        if not self._read:
            self._read = True
            return {"type": "http.request", "body": self._request.body, "more_body": False}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        self._messages.append(message)
        self._ready.set()
