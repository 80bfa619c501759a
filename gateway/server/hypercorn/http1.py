"""Hypercorn's HTTP/1.1 protocol, hardened and running on anyio.

Hypercorn's protocol classes are independent of Trio and asyncio: they get events from a worker context and tasks from a
task group. The two are replaced by classes on anyio, which have only the parts that HTTP/1.1 uses. Hypercorn is pinned
to 0.18.0, because the overrides use its private methods.
"""

import sys
from dataclasses import replace
from typing import Any, NoReturn, Protocol, cast
from urllib.parse import urlsplit

import anyio
import h11
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.events import Closed, Event, Updated
from hypercorn.protocol.events import Body, Request, Response
from hypercorn.protocol.events import Event as StreamEvent
from hypercorn.protocol.h11 import STREAM_ID, H11Protocol
from hypercorn.protocol.http_stream import HTTPStream
from hypercorn.typing import ASGIFramework, ConnectionState, H11SendableEvent, TaskGroup, WorkerContext
from starlette.types import ASGIApp
from typing_extensions import override

from gateway.middleware import errors
from gateway.middleware.request_id import HEADER, request_id_from
from gateway.server.hypercorn.parser import Parser
from gateway.server.hypercorn.requests import Requests
from gateway.server.limits import ServerLimits

SUPPORTED_VERSIONS = (b"1.0", b"1.1")
CHUNKED = b"\r\nTransfer-Encoding: chunked\r\n"
"""The header as h11 writes it when it chooses this encoding."""

Address = tuple[str, int]


class Wire(Protocol):
    """Interface of the connection that the protocol uses."""

    client: Address
    """Address of the client."""
    server: Address | None
    """Address of the server; None if it is unknown."""

    async def send(self, data: bytes) -> None:
        """Send bytes. Returns normally even if the client is gone."""

    def set_idle(self, idle: bool) -> None:
        """Mark the connection as busy when a request begins, and as idle when its response is complete."""

    def finish(self, reason: str) -> None:
        """End the connection after the last byte. The reason is empty after a complete response."""

    def abort(self, reason: str) -> None:
        """Close with a reset, which does not look like a clean end."""


class PausedError(Exception):
    """h11 has bytes of the next request, but the response to the current one is not complete."""


class NonBlockingEvent:
    """Replacement for the event on which Hypercorn's reader waits while h11 is paused.

    Its `wait` raises instead, so that parsing stops and reading continues.
    """

    async def clear(self) -> None:
        """Do nothing, because there is no state to clear."""

    async def set(self) -> None:
        """Do nothing, because no task waits for the event."""

    async def wait(self) -> NoReturn:
        """Stop parsing without a wait.

        Raises:
            PausedError: Always.
        """
        raise PausedError


class ServerContext:
    """State that all connections share: the part of Hypercorn's worker context that HTTP/1.1 uses."""

    event_class = NonBlockingEvent
    """Class that Hypercorn instantiates for its reader's event."""

    def __init__(self, limits: ServerLimits) -> None:
        self.limits = limits
        """Limits of the server and of each connection."""
        self.terminated = anyio.Event()
        """Set when the server shuts down. Connections then close after their response."""
        self.config = Config()
        """Hypercorn's configuration."""
        self.config.errorlog = None
        self.config.include_server_header = False
        self.config.keep_alive_max_requests = sys.maxsize  # no limit: only the client or the server ends a connection
        self.config.h11_max_incomplete_size = limits.head


class Http1(H11Protocol):
    """Protocol for HTTP/1.1 only, with a reader that never stops and so detects every hang-up.

    - `Upgrade` is ignored and HTTP/2 with prior knowledge is answered with 505: one cleartext HTTP/2 connection can
      end Hypercorn's whole process, and Hypercorn has no setting that disables it.
    - Pipelined bytes are kept up to a limit while the connection continues to read.
    - Empty lines before a request are skipped (RFC 9112, 2.2).
    """

    connection: Parser

    def __init__(
        self, app: ASGIApp, context: ServerContext, requests: Requests, wire: Wire, state: dict[str, Any]
    ) -> None:
        super().__init__(
            ASGIWrapper(cast("ASGIFramework", app)),
            context.config,
            cast("WorkerContext", context),
            cast("TaskGroup", requests),
            ConnectionState(state),
            False,
            wire.client,
            wire.server,
            self._deliver,
        )
        self.connection = self._new_parser()
        self._request: h11.Request | None = None
        self._wire = wire
        self._limits = context.limits
        self._parsing = anyio.Lock(fast_acquire=True)
        self._open = True
        self._chunked = False  # encoding of the current response's body

    def _new_parser(self) -> Parser:
        return Parser(h11.SERVER, self.config.h11_max_incomplete_size)

    async def received(self, data: bytes) -> None:
        """Parse bytes from the client and handle the events that they complete."""
        if self._open:
            self.connection.receive_data(data)
            await self._parse()

    async def disconnected(self) -> None:
        """Stop parsing and send a disconnect to the running request, because the connection ended."""
        self._open = False
        await self.handle(Closed())

    async def _parse(self) -> None:
        async with self._parsing:
            if not self._open:
                return
            self._skip_empty_lines()
            try:
                await self._handle_events()
            except PausedError:
                if self._ahead() > self._limits.ahead:
                    await self._close("client sent too much before its turn")

    def _ahead(self) -> int:
        return len(self.connection.trailing_data[0])

    def _skip_empty_lines(self) -> None:
        if self.connection.their_state is not h11.IDLE:
            return
        received = self.connection.trailing_data[0]
        if received[:1] in (b"\r", b"\n"):
            self.connection = self._new_parser()
            if rest := received.lstrip(b"\r\n"):
                self.connection.receive_data(rest)

    async def _deliver(self, event: Event) -> None:
        match event:
            case Updated(idle=idle):
                self._wire.set_idle(idle)
            case Closed():
                await self._close(self._close_reason())

    def _close_reason(self) -> str:
        if self.connection.their_state is h11.ERROR:
            return "client broke the protocol"
        complete = self.connection.our_state in {h11.DONE, h11.MUST_CLOSE, h11.CLOSED}
        return "" if complete else "response was cut short"

    async def _close(self, reason: str) -> None:
        self._wire.finish(reason)
        await self.disconnected()

    @override
    async def _check_protocol(self, event: h11.Request) -> None:
        """Stay on HTTP/1.1, whatever protocol the client asks for."""

    @override
    async def _create_stream(self, request: h11.Request) -> None:
        self._request = request
        refusal = self._refusal(request)
        if refusal is not None:
            await self._send_error_response(refusal)
            await self._close("request was refused")
            return
        self.stream = HTTPStream(
            self.app,
            self.config,
            self.context,
            self.task_group,
            self.ssl,
            self.client,
            self.server,
            self.stream_send,
            STREAM_ID,
        )
        await self.stream.handle(
            Request(
                stream_id=STREAM_ID,
                headers=list(request.headers),
                http_version=request.http_version.decode(),
                method=request.method.decode().upper(),
                raw_path=_origin_form(request.target),
                state=self.connection_state,
            )
        )
        self.keep_alive_requests += 1

    def _refusal(self, request: h11.Request) -> int | None:
        if request.http_version not in SUPPORTED_VERSIONS:
            return 505
        # h11 limits only heads that come in pieces.
        head = len(request.target) + sum(len(name) + len(value) for name, value in request.headers)
        return 431 if head > self._limits.head else None

    @override
    async def stream_send(self, event: StreamEvent) -> None:
        """Send a part of a response. During a shutdown, responses carry `connection: close`."""
        if isinstance(event, Body):
            await self._send_body(event.data)
            return
        if isinstance(event, Response) and self.context.terminated.is_set():
            event = replace(event, headers=[*event.headers, (b"connection", b"close")])
        await super().stream_send(event)

    @override
    async def _send_h11_event(self, event: H11SendableEvent) -> None:
        try:
            data = self.connection.send(event)
        except h11.LocalProtocolError:
            if self.connection.their_state is not h11.ERROR:
                raise
            return
        if isinstance(event, h11.Response):
            self._chunked = CHUNKED in data
        if data:
            await self._wire.send(data)

    async def _send_body(self, data: bytes) -> None:
        """Send a non-empty part of a body.

        A chunk is framed here and not by h11, which keeps no state about chunks. Its checks cost as much as the send.
        """
        if self._chunked and self.connection.our_state is h11.SEND_BODY:
            await self._wire.send(b"%x\r\n%b\r\n" % (len(data), data))
        else:
            await self._send_h11_event(h11.Data(data=data))

    @override
    async def _send_error_response(self, status_code: int) -> None:
        # Before the head is complete, there is no request yet that this response belongs to.
        request = self._request if self.connection.our_state is h11.SEND_RESPONSE else None
        response = errors.response_for(errors.protocol_problem(status_code))
        headers = [
            *response.raw_headers,
            (HEADER, request_id_from(request.headers if request else ()).encode()),
            *self.config.response_headers("h11"),
        ]
        await self._send_h11_event(h11.Response(status_code=status_code, headers=headers))
        if request is None or request.method != b"HEAD":
            await self._send_h11_event(h11.Data(data=bytes(response.body)))
        await self._send_h11_event(h11.EndOfMessage())

    @override
    async def _maybe_recycle(self) -> None:
        if self.connection.our_state is h11.SEND_BODY and self.connection.their_http_version == b"1.0":
            self._wire.abort("response was cut short")  # on HTTP/1.0, FIN is the clean end of a response
        await super()._maybe_recycle()
        if self.connection.our_state is h11.IDLE and self._ahead():
            self.task_group.spawn(self._parse)


def _origin_form(target: bytes) -> bytes:
    """Return the path and query of a target in absolute form, which a server must accept (RFC 9112, 3.2.2)."""
    if not target.lower().startswith((b"http://", b"https://")):
        return target
    address = urlsplit(target)
    return (address.path or b"/") + (b"?" + address.query if address.query else b"")
