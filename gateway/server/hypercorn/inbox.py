"""Queue of the ASGI messages that one request's application has not received yet."""

import anyio
from starlette.types import Message


class Inbox:
    """Body bytes, then disconnect messages. `put` never waits, so that the connection's reader never waits for it."""

    def __init__(self) -> None:
        self._body = bytearray()
        self._more_body = True
        self._has_body = False
        self._disconnects: list[Message] = []
        self._arrived = anyio.Event()

    @property
    def unread(self) -> int:
        """Number of body bytes that the application has not received yet."""
        return len(self._body)

    def put(self, message: Message) -> None:
        """Add an ASGI `http.request` or `http.disconnect`. Waiting body messages are joined."""
        if message["type"] == "http.request":
            self._body += message["body"]
            self._more_body = message["more_body"]
            self._has_body = True
        else:
            self._disconnects.append(message)
        self._arrived.set()

    async def get(self) -> Message:
        """Wait for the next message and return it, as ASGI's `receive`. Loses no message when cancelled."""
        while not (self._has_body or self._disconnects):
            if self._arrived.is_set():
                self._arrived = anyio.Event()
            await self._arrived.wait()
        if not self._has_body:
            return self._disconnects.pop(0)
        body, self._body, self._has_body = bytes(self._body), bytearray(), False
        return {"type": "http.request", "body": body, "more_body": self._more_body}
