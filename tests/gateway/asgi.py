"""A client without sockets: it sends ASGI events to the application, and can hang up at any moment.

Every response is checked against the application's own description.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.lowlevel
import orjson
from starlette.types import ASGIApp, Message

from tests.gateway import description


@dataclass
class AsgiCall:
    """One request and its response. Send it with `run`; `hang_up` and `sent` may be used meanwhile."""

    app: ASGIApp
    path: str
    body: bytes = b""
    method: str = "POST"
    headers: dict[str, str] = field(default_factory=dict)
    query: str = ""
    start: Message | None = None
    bodies: list[bytes] = field(default_factory=list)
    """The response's body messages in order."""
    complete: bool = False
    _gone: anyio.Event = field(default_factory=anyio.Event)
    _news: anyio.Event = field(default_factory=anyio.Event)
    unread: bool = True
    """True until the application has read the body."""
    _disconnect: Message = field(default_factory=lambda: {"type": "http.disconnect"})

    async def run(self) -> "AsgiCall":
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": self.method,
            "scheme": "http",
            "path": self.path,
            "raw_path": self.path.encode(),
            "query_string": self.query.encode(),
            "root_path": "",
            "headers": [(name.encode(), value.encode()) for name, value in {"host": "x", **self.headers}.items()],
        }
        with anyio.fail_after(20):
            await self.app(scope, self._receive, self._send)
        if self.start is not None and self.complete:
            headers = {name.decode(): value.decode() for name, value in self.start["headers"]}
            description.check(self.method, self.path, self.status, headers, self.content)
        return self

    @asynccontextmanager
    async def running(self) -> AsyncIterator["AsgiCall"]:
        """Send it at the begin of the context, and wait for its response at the end."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.run)
            yield self

    def hang_up(self) -> None:
        self._gone.set()

    def shut_down(self) -> None:
        """Disconnect as the server does when it stops, with a client that still listens."""
        self._disconnect.update(reason="the server is shutting down", shutdown=True)
        self._gone.set()

    async def sent(self, count: int) -> None:
        """Wait until the response has that many body messages."""
        while len(self.bodies) < count:
            await self._news.wait()

    @property
    def status(self) -> int:
        assert self.start is not None, "there is no response"
        status: int = self.start["status"]
        return status

    @property
    def content(self) -> bytes:
        return b"".join(self.bodies)

    @property
    def json(self) -> Any:
        return orjson.loads(self.content)

    @property
    def chunks(self) -> list[Any]:
        """The events of a stream of OpenAI's, which has a clean end."""
        *events, done, end = self.content.split(b"\n\n")
        assert (done, end) == (b"data: [DONE]", b"")
        return [orjson.loads(event.removeprefix(b"data: ")) for event in events]

    def header(self, name: str) -> str | None:
        assert self.start is not None, "there is no response"
        return next((value.decode() for key, value in self.start["headers"] if key == name.encode()), None)

    async def _receive(self) -> Message:
        if self.unread:
            self.unread = False
            return {"type": "http.request", "body": self.body, "more_body": False}
        await self._gone.wait()
        return self._disconnect

    async def _send(self, message: Message) -> None:
        await anyio.lowlevel.checkpoint()
        if message["type"] == "http.response.start":
            assert self.start is None, "a second head"
            self.start = message
            return
        assert self.start is not None, "a body before the head"
        assert not self.complete, "a body after the end"
        self.bodies.append(message.get("body", b""))
        self.complete = not message.get("more_body", False)
        self._news.set()
        self._news = anyio.Event()


async def post(app: ASGIApp, path: str, body: object, **headers: str) -> AsgiCall:
    """POST `body`, bytes as they are and anything else as JSON, and wait for the whole response."""
    data = body if isinstance(body, bytes) else orjson.dumps(body)
    return await AsgiCall(
        app, path, data, headers={name.replace("_", "-"): value for name, value in headers.items()}
    ).run()


async def get(app: ASGIApp, path: str) -> AsgiCall:
    """GET, and wait for the whole response."""
    return await AsgiCall(app, path, method="GET").run()
