"""A client that speaks TLS and nothing above it, so that it can leave and misbehave in every way."""

import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio.lowlevel
import pytest
from starlette.types import ASGIApp
from typing_extensions import override

from gateway.server.limits import ServerLimits
from gateway.server.server import ContextSource
from tests.gateway.server.sockets import LEAVE, Client, Site, serving
from tests.gateway.server.tls.certificates import client_context, server_context


class TlsClient(Client):
    """A client whose `write`, `send` and `receive` take and return plain text."""

    def __init__(
        self,
        port: int,
        receive_buffer: int | None = None,
        context: ssl.SSLContext | None = None,
        name: str = "localhost",
    ) -> None:
        super().__init__(port, receive_buffer)
        self._wrap(context or client_context(), name)

    @classmethod
    def on(cls, sock: socket.socket) -> "TlsClient":
        """Return a client on a connected socket."""
        client = cls.__new__(cls)
        sock.setblocking(False)
        client.sock, client._received = sock, b""
        client._wrap(client_context(), "localhost")
        return client

    def _wrap(self, context: ssl.SSLContext, name: str) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=name)
        self.close_notified = False
        """True once the server's close_notify has come."""

    def begin(self) -> bytes:
        """Return the ClientHello."""
        try:
            self.tls.do_handshake()
        except ssl.SSLWantReadError:
            return self._outgoing.read()
        raise AssertionError("a handshake needs the server")

    async def handshake(self) -> None:
        await super().send(self.begin())
        await self.complete()

    async def complete(self) -> None:
        """Complete the handshake behind the ClientHello."""
        while True:
            data = await super().receive()
            assert data, "the connection ended in the handshake"
            self._incoming.write(data)
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                continue
            finally:
                super().write(self._outgoing.read())
            return

    def encrypted(self, data: bytes) -> bytes:
        """Return `data` as the bytes to send."""
        self.tls.write(data)
        return self._outgoing.read()

    @override
    def write(self, data: bytes) -> None:
        self.tls.write(data)
        super().write(self._outgoing.read())

    @override
    async def send(self, data: bytes) -> None:
        self.tls.write(data)
        await super().send(self._outgoing.read())

    @override
    async def receive(self) -> bytes:
        while True:
            try:
                data = self.tls.read(65536)
            except ssl.SSLWantReadError:
                encrypted = await super().receive()
                if not encrypted:
                    return b""
                self._incoming.write(encrypted)
            else:
                self.close_notified = self.close_notified or not data
                return data

    async def send_slowly_encrypted(self, data: bytes) -> None:
        """Complete the handshake and send `data`, one byte at a time."""
        await self.send_slowly_raw(self.begin())
        await self.complete()
        self.tls.write(data)
        await self.send_slowly_raw(self._outgoing.read())

    async def send_slowly_raw(self, data: bytes) -> None:
        for number in range(len(data)):
            Client.write(self, data[number : number + 1])
            await anyio.lowlevel.checkpoint()

    async def is_closed_by_server(self) -> bool:
        """Wait for FIN or a reset, whatever comes before it."""
        try:
            while await super().receive():
                pass
        except ConnectionError:
            return True
        return True

    def send_close_notify(self) -> None:
        """Say that no more will come, and stay connected."""
        try:
            self.tls.unwrap()
        except ssl.SSLWantReadError:
            Client.write(self, self._outgoing.read())


def _close_notify(client: Client) -> None:
    assert isinstance(client, TlsClient)
    client.send_close_notify()


LEAVE_TLS: dict[str, Callable[[Client], None]] = {**LEAVE, "close_notify": _close_notify}
"""Ways to leave. All but the last leave without a close_notify."""


def connect(site: Site, receive_buffer: int | None = None) -> TlsClient:
    """Connect to a site without a handshake."""
    client = TlsClient(site.port, receive_buffer)
    site.clients.append(client)
    return client


async def secured(site: Site, receive_buffer: int | None = None) -> TlsClient:
    """Connect to a site and complete the handshake."""
    client = connect(site, receive_buffer)
    await client.handshake()
    return client


async def connected(site: Site, receive_buffer: int | None = None) -> Client:
    """Connect to a site as it wants it: over TLS if it has TLS."""
    return await secured(site, receive_buffer) if site.secure else site.client(receive_buffer)


def tls_if(secure: bool) -> ContextSource | None:
    """Return the `tls` of `serving`."""
    return server_context if secure else None


WITH_AND_WITHOUT_TLS = pytest.mark.parametrize("secure", [False, True], ids=["plain", "TLS"])


@asynccontextmanager
async def serving_tls(app: ASGIApp, limits: ServerLimits | None = None, **more: Any) -> AsyncIterator[Site]:
    """Serve `app` over TLS. See `serving`."""
    async with serving(app, limits, tls=server_context, **more) as site:
        yield site
