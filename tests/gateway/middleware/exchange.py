"""An ASGI server in memory."""

import anyio
import anyio.lowlevel
from starlette.types import Message, Scope


class Exchange:
    """One request: it sends its scripted events, then waits."""

    def __init__(self, *messages: Message) -> None:
        self.messages = list(messages)
        self.sent: list[Message] = []
        self.scope: Scope = {"type": "http", "headers": [], "method": "POST", "path": "/"}

    async def receive(self) -> Message:
        await anyio.lowlevel.checkpoint()
        if not self.messages:
            await anyio.sleep_forever()
        return self.messages.pop(0)

    async def send(self, message: Message) -> None:
        await anyio.lowlevel.checkpoint()
        self.sent.append(message)


def part(body: bytes, *, more: bool = False) -> Message:
    return {"type": "http.request", "body": body, "more_body": more}
