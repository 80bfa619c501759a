"""Queue of the ASGI messages that one request's application has not received yet."""

from starlette.types import Message
from typing_extensions import override

from engine.notifier import Notifier
from gateway.middleware.disconnect import Arrivals, OnDisconnect


class Inbox(Arrivals):
    """Body bytes, then disconnect messages. `put` never waits; the connection's reader waits in `drained`."""

    def __init__(self, limit: int) -> None:
        """Create an inbox.

        Args:
            limit: Unread bytes of a body, at which the inbox is full.
        """
        self._limit = limit
        self._body = bytearray()
        self._more_body = True
        self._has_body = False
        self._disconnects: list[Message] = []
        self._disconnected: Message | None = None  # the first one
        self._on_disconnect: OnDisconnect = lambda _message: None
        self._changed = Notifier()

    def put(self, message: Message) -> None:
        """Add an ASGI `http.request` or `http.disconnect`. Waiting body messages are joined.

        Body messages after a disconnect are dropped: the application needs no more of them.
        """
        if message["type"] == "http.disconnect":
            self._disconnects.append(message)
            self._disconnected = self._disconnected or message
            self._on_disconnect(message)
        elif not self._disconnected:
            self._body += message["body"]
            self._more_body = message["more_body"]
            self._has_body = True
        self._changed.notify()

    @override
    def on_disconnect(self, call: OnDisconnect) -> None:
        """Call a function at each disconnect, before its message is received, and at once after a disconnect."""
        self._on_disconnect = call
        if self._disconnected:
            call(self._disconnected)

    @override
    def take_body(self, limit: int) -> bytes | None:
        if self._more_body or self._disconnected or not self._has_body or len(self._body) > limit:
            return None
        return self._take()

    @property
    def is_full(self) -> bool:
        """True if the application should receive before more of the body is read."""
        return self._more_body and not self._disconnected and len(self._body) >= self._limit

    async def drained(self) -> None:
        """Wait until the inbox is not full."""
        while self.is_full:
            await self._changed.wait()

    async def get(self) -> Message:
        """Wait for the next message and return it, as ASGI's `receive`. Loses no message when cancelled."""
        while not (self._has_body or self._disconnects):
            await self._changed.wait()
        if not self._has_body:
            return self._disconnects.pop(0)
        return {"type": "http.request", "body": self._take(), "more_body": self._more_body}

    def _take(self) -> bytes:
        body, self._body, self._has_body = bytes(self._body), bytearray(), False
        self._changed.notify()
        return body
