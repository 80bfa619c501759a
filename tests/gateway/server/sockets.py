"""A server on 127.0.0.1 and clients that write raw bytes to it, for input that a correct client cannot send."""

import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import anyio
import anyio.lowlevel
import h11
from starlette.types import ASGIApp

from gateway.middleware.patience import Clock
from gateway.server.limits import ServerLimits
from gateway.server.server import ContextSource, Server

HOST = b"host: localhost\r\n"


def get(path: str = "/", headers: str = "", version: str = "1.1") -> bytes:
    return f"GET {path} HTTP/{version}\r\nhost: localhost\r\n{headers}\r\n".encode()


def post(body: bytes = b"{}", headers: str = "", path: str = "/", version: str = "1.1") -> bytes:
    head = f"POST {path} HTTP/{version}\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n{headers}\r\n"
    return head.encode() + body


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes


class Client:
    """A client socket without any protocol."""

    def __init__(self, port: int, receive_buffer: int | None = None) -> None:
        self.sock = socket.socket()
        if receive_buffer is not None:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        try:
            self.sock.connect(("127.0.0.1", port))
        except OSError:
            self.sock.close()
            raise
        self.sock.setblocking(False)
        self._received = b""

    @property
    def is_open(self) -> bool:
        return self.sock.fileno() >= 0

    def write(self, data: bytes) -> None:
        """Write bytes that surely fit in the kernel's buffer."""
        assert self.sock.send(data) == len(data)

    async def send(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            await anyio.wait_writable(self.sock)
            view = view[self.sock.send(view) :]

    async def send_slowly(self, data: bytes) -> None:
        """Send one byte at a time, as long as the server reads."""
        with suppress(ConnectionError):
            for number in range(len(data)):
                self.write(data[number : number + 1])
                await anyio.lowlevel.checkpoint()

    async def receive(self) -> bytes:
        while True:
            await anyio.wait_readable(self.sock)
            with suppress(BlockingIOError):
                return self.sock.recv(65536)

    async def see(self, marker: bytes) -> None:
        """Wait until `marker` has come. All bytes stay readable."""
        while marker not in self._received:
            data = await self.receive()
            assert data, f"connection ended before {marker!r}: {self._received!r}"
            self._received += data

    async def read_until(self, marker: bytes) -> bytes:
        await self.see(marker)
        end = self._received.index(marker) + len(marker)
        found, self._received = self._received[:end], self._received[end:]
        return found

    async def read_to_end(self) -> bytes:
        """Return all bytes before FIN. Raises ConnectionResetError on a reset."""
        while data := await self.receive():
            self._received += data
        found, self._received = self._received, b""
        return found

    async def read_to_the_close(self) -> bytes:
        """Return all bytes before FIN or a reset."""
        with suppress(ConnectionError):
            await self.read_to_end()
        return self._received

    async def is_closed(self) -> bool:
        """Wait for FIN or a reset, ignoring the bytes before it."""
        try:
            await self.read_to_end()
        except ConnectionError:
            return True
        return True

    async def answer(self, method: str = "GET") -> Answer:
        """Return the next response, whole. Raises `h11.RemoteProtocolError` if it is cut short."""
        parser = h11.Connection(h11.CLIENT)
        parser.send(h11.Request(method=method, target="/", headers=[("host", "localhost")]))
        parser.send(h11.EndOfMessage())
        if self._received:
            parser.receive_data(self._received)
        answer = Answer(0, {}, b"")
        while not isinstance(event := parser.next_event(), h11.EndOfMessage):
            if event is h11.NEED_DATA:
                parser.receive_data(await self.receive())
            elif isinstance(event, h11.Response):
                answer.status = event.status_code
                answer.headers = {name.decode(): value.decode() for name, value in event.headers}
            elif isinstance(event, h11.Data):
                answer.body += event.data
        self._received = parser.trailing_data[0]
        return answer

    def close(self) -> None:
        self.sock.close()

    def reset(self) -> None:
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def half_close(self) -> None:
        self.sock.shutdown(socket.SHUT_WR)


LEAVE: dict[str, Callable[[Client], None]] = {
    "close": Client.close,
    "reset": Client.reset,
    "half-close": Client.half_close,
}


@dataclass
class Site:
    """A running server. Its clients are closed with it."""

    server: Server
    port: int
    secure: bool
    """True if the server has TLS."""
    shutdown: anyio.Event = field(default_factory=anyio.Event)
    draining: anyio.Event = field(default_factory=anyio.Event)
    stopped: anyio.Event = field(default_factory=anyio.Event)
    clients: list[Client] = field(default_factory=list)

    def client(self, receive_buffer: int | None = None) -> Client:
        client = Client(self.port, receive_buffer)
        self.clients.append(client)
        return client

    async def ask(self, request: bytes) -> Answer:
        """Send one request on a new connection and return its answer."""
        client = self.client()
        await client.send(request)
        answer = await client.answer()
        client.close()
        return answer


def listen(backlog: int = 16) -> socket.socket:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(backlog)
    return listener


@asynccontextmanager
async def serving(
    app: ASGIApp,
    limits: ServerLimits | None = None,
    listener: socket.socket | None = None,
    clock: Clock = anyio.current_time,
    tls: ContextSource | None = None,
) -> AsyncIterator[Site]:
    """Serve `app`; on exit, shut down and wait for the server's end. No test may take 20 seconds here."""
    listener = listener or listen()
    server = Server(app, limits or ServerLimits(grace=1, close_timeout=1), clock, tls)
    site = Site(server, listener.getsockname()[1], tls is not None)

    async def run() -> None:
        await site.server.run([listener], site.shutdown, site.draining.set)
        site.stopped.set()

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            try:
                yield site
            finally:
                site.shutdown.set()
                for client in site.clients:
                    client.close()
