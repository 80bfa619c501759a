"""What one request's application has yet to receive."""

import anyio
from starlette.types import Message


class Inbox:
    """Body bytes, then why it is over. Putting never waits, so that the connection's reader never does."""

    def __init__(self) -> None:
        self._body = bytearray()
        self._more_body = True
        self._has_body = False
        self._disconnects: list[Message] = []
        self._arrived = anyio.Event()

    @property
    def unread(self) -> int:
        """Bytes of the body that nobody has taken yet."""
        return len(self._body)

    def put(self, message: Message) -> None:
        """Take an ASGI `http.request` or `http.disconnect`. Body messages that wait are joined."""
        if message["type"] == "http.request":
            self._body += message["body"]
            self._more_body = message["more_body"]
            self._has_body = True
        else:
            self._disconnects.append(message)
        self._arrived.set()

    async def get(self) -> Message:
        """ASGI's `receive`: waits for the next message. Cancelled, it loses none."""
        while not (self._has_body or self._disconnects):
            if self._arrived.is_set():
                self._arrived = anyio.Event()
            await self._arrived.wait()
        if not self._has_body:
            return self._disconnects.pop(0)
        body, self._body, self._has_body = bytes(self._body), bytearray(), False
        return {"type": "http.request", "body": body, "more_body": self._more_body}
