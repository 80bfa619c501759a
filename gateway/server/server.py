"""Server that accepts clients and shuts down in bounded time."""

import itertools
import logging
import socket
import ssl
from collections.abc import Callable
from typing import TypeAlias

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup
from starlette.types import ASGIApp

from engine.notifier import Notifier
from gateway.middleware.patience import Clock
from gateway.server.connection import Connection
from gateway.server.hypercorn.context import ServerContext
from gateway.server.hypercorn.wire import Address
from gateway.server.limits import ServerLimits
from gateway.server.tls.transport import TlsTransport
from gateway.server.transport import Transport
from gateway.server.turns import Turns
from gateway.server.unix import peer_of

logger = logging.getLogger(__name__)

ContextSource: TypeAlias = Callable[[], ssl.SSLContext]
"""Returns the TLS context for a new connection."""

ACCEPT_PAUSE = 0.1
"""Seconds until the next attempt after a failure to accept a client."""
ACCEPTS_PER_YIELD = 16
"""Clients that are accepted before other tasks run."""


class Server:
    """Server of one application over HTTP/1.1, with its connections. Runs on Trio and asyncio."""

    def __init__(
        self,
        app: ASGIApp,
        limits: ServerLimits,
        clock: Clock = anyio.current_time,
        tls: ContextSource | None = None,
    ) -> None:
        """Create a server.

        Args:
            app: The ASGI application. It gets no lifespan events.
            limits: Limits of the server and of each connection.
            clock: Clock by which the patience with clients is measured.
            tls: Returns the TLS context for a new connection. None serves without TLS. Unix sockets never have it.
        """
        self.connections: set[Connection] = set()
        """Connections that are open or have a request that still runs."""
        self._app = app
        self._limits = limits
        self._context = ServerContext(limits, clock)
        self._tls = tls
        self._changed = Notifier()

    @property
    def turns(self) -> Turns:
        """Turns of the connections that upload a body or a large head."""
        return self._context.turns

    async def run(
        self, sockets: list[socket.socket], shutdown: anyio.Event, on_draining: Callable[[], None] = lambda: None
    ) -> None:
        """Serve until `shutdown` is set and every connection has ended.

        After `shutdown` is set, it takes at most `limits.grace` + `limits.close_timeout` seconds, plus the bounded
        clean-up that the application shields.

        Args:
            sockets: Listening sockets, which are closed as soon as `shutdown` is set.
            shutdown: Starts the shutdown when it is set.
            on_draining: Called once the listening sockets are closed.
        """
        async with anyio.create_task_group() as tasks:
            try:
                await self._accept_until(shutdown, sockets, tasks)
            finally:
                for listener in sockets:
                    listener.close()
            on_draining()
            await self._drain()
            tasks.cancel_scope.cancel()

    async def _accept_until(self, shutdown: anyio.Event, sockets: list[socket.socket], tasks: TaskGroup) -> None:
        async with anyio.create_task_group() as accepting:
            for listener in sockets:
                accepting.start_soon(self._accept, listener, tasks)
            await shutdown.wait()
            accepting.cancel_scope.cancel()

    async def _accept(self, listener: socket.socket, tasks: TaskGroup) -> None:
        listener.setblocking(False)
        for number in itertools.count(1):
            sock, address = await next_client(listener)
            try:
                await self._context.places.take()
            except BaseException:
                sock.close()
                raise
            connection = self._connect(sock, address)
            self.connections.add(connection)
            tasks.start_soon(self._run, connection)
            if number % ACCEPTS_PER_YIELD == 0:
                await anyio.lowlevel.checkpoint()

    def _connect(self, sock: socket.socket, address: Address) -> Connection:
        plain = Transport(sock, self._limits.write_timeout, self._context.clock)
        if sock.family is socket.AF_UNIX:
            return Connection(self._app, self._context, plain, peer_of(sock))
        if self._tls is None:
            return Connection(self._app, self._context, plain, address[:2])
        encrypted = TlsTransport(plain, self._tls(), self._context.handshakes.next)
        return Connection(self._app, self._context, encrypted, address[:2])

    async def _run(self, connection: Connection) -> None:
        try:
            await connection.run()
        finally:
            self.connections.remove(connection)
            self._context.places.leave(connection)
            self._changed.notify()

    async def count_falls_to(self, count: int) -> None:
        """Wait until at most `count` connections remain."""
        while len(self.connections) > count:
            await self._changed.wait()

    async def _drain(self) -> None:
        self._context.terminated.set()
        for connection in self.connections:
            connection.drain()
        with anyio.move_on_after(self._limits.grace):
            await self.count_falls_to(0)
        for connection in self.connections:
            connection.cancel_requests()
        with anyio.move_on_after(self._limits.close_timeout):
            await self.count_falls_to(0)
        for connection in self.connections:
            connection.abort("the server stopped")


async def next_client(listener: socket.socket) -> tuple[socket.socket, tuple[str, int]]:
    """Return the socket and the address of the next client.

    Waits only if the backlog is empty, so that a burst of clients is accepted at once. A failure to accept is logged
    and tried again: it comes from the network or from a lack of files, and is temporary. Where macOS returns a client
    that has reset its connection already, it has no address, and is passed over.
    """
    address: tuple[str, int] | None
    failure = ""
    while True:
        try:
            sock, address = listener.accept()
        except BlockingIOError:
            await anyio.wait_readable(listener)
        except OSError as error:
            if str(error) != failure:  # once, however long it lasts
                logger.warning("cannot accept a client: %s", error)
            failure = str(error)
            await anyio.sleep(ACCEPT_PAUSE)
        else:
            if address is not None:
                return sock, address
            sock.close()
