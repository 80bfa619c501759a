"""A server on 127.0.0.1 with scripted answers, byte by byte."""

import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import orjson
from anyio.abc import ByteStream, Listener, SocketAttribute, SocketStream
from anyio.streams.tls import TLSListener

CERTIFICATE = Path(__file__).with_name("certificate.pem")
"""A self-signed certificate for 127.0.0.1 and localhost, with its key, valid for a hundred years."""

DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True)
class Request:
    line: str
    headers: dict[str, str]
    body: dict[str, Any]


class Hangup(Exception):
    """Raised by a script to close the connection."""


@dataclass
class Peer:
    """The client's end, for a script."""

    stream: ByteStream

    async def send(self, *parts: bytes) -> None:
        await self.stream.send(b"".join(parts))

    async def reset(self) -> None:
        """Close with a TCP reset."""
        sock = self.stream.extra(SocketAttribute.raw_socket)  # noqa: S610 - not Django's
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        raise Hangup


Script: TypeAlias = Callable[[Request, Peer], Awaitable[None]]


@dataclass
class Scripted:
    port: int
    requests: list[Request] = field(default_factory=list)
    connections: int = 0

    def url(self, scheme: str = "http") -> str:
        return f"{scheme}://127.0.0.1:{self.port}/v1"


async def listening() -> tuple[Listener[SocketStream], int]:
    """A listener on a free port, and the port."""
    (listener,) = (await anyio.create_tcp_listener(local_host="127.0.0.1")).listeners
    return listener, listener.extra(SocketAttribute.local_port)  # noqa: S610 - not Django's


@asynccontextmanager
async def scripted(script: Script, *, tls: bool = False) -> AsyncIterator[Scripted]:
    """Serve until the test is over. Every request is recorded, then passed to the script."""
    listener, port = await listening()
    server = Scripted(port)

    async def handle(stream: ByteStream) -> None:
        server.connections += 1
        async with stream:
            with suppress(Hangup, anyio.EndOfStream, anyio.BrokenResourceError):
                await converse(server, script, stream)

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(CERTIFICATE)
    async with listener, anyio.create_task_group() as tasks:
        served = TLSListener(listener, context, standard_compatible=False) if tls else listener
        tasks.start_soon(served.serve, handle)
        yield server
        tasks.cancel_scope.cancel()


async def converse(server: Scripted, script: Script, stream: ByteStream) -> None:
    received = b""
    while True:
        while b"\r\n\r\n" not in received:
            received += await stream.receive()
        head, _, received = received.partition(b"\r\n\r\n")
        line, *fields = head.decode().split("\r\n")
        headers = dict(each.split(": ", 1) for each in fields)
        length = int(headers.get("content-length", 0))
        while len(received) < length:
            received += await stream.receive()
        body, received = received[:length], received[length:]
        request = Request(line, headers, orjson.loads(body or b"{}"))
        server.requests.append(request)
        await script(request, Peer(stream))


def whole(body: object, status: int = 200, headers: str = "") -> bytes:
    """Return a whole response of JSON, or of the bytes given."""
    data = body if isinstance(body, bytes) else orjson.dumps(body)
    head = (
        f"HTTP/1.1 {status} Whatever\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n{headers}\r\n"
    )
    return head.encode() + data


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"


def framed(data: bytes) -> bytes:
    """Return an HTTP chunk."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def event(value: object) -> bytes:
    return b"data: " + orjson.dumps(value) + b"\n\n"


def text(words: str = " word") -> bytes:
    """Return a streamed chunk of a completion."""
    return event({"choices": [{"index": 0, "text": words, "finish_reason": None}], "usage": None})


def usage(completion: int, prompt: int = 16) -> bytes:
    """Return the streamed chunk with the usage."""
    return event({"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": completion}})


def stream(*events: bytes) -> bytes:
    """Return a whole stream of events, each in its own HTTP chunk."""
    return HEAD + b"".join(map(framed, events)) + END
