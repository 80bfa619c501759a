"""Hypercorn's HTTP/1.1 protocol, hardened and running on anyio.

Hypercorn's protocol classes are independent of Trio and asyncio: they get events from a worker context and tasks from a
task group. The two are replaced by classes on anyio, which have only the parts that HTTP/1.1 uses. Hypercorn is pinned
to 0.18.0, because the overrides use its private methods.
"""

import contextlib
from collections.abc import Iterable
from dataclasses import replace
from typing import cast

import anyio
import h11
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.events import Closed, Event, Updated
from hypercorn.protocol.events import Body, Request, Response
from hypercorn.protocol.events import Event as StreamEvent
from hypercorn.protocol.h11 import STREAM_ID, H11Protocol
from hypercorn.typing import ASGIFramework, ConnectionState, H11SendableEvent, TaskGroup, WorkerContext
from starlette.types import ASGIApp
from typing_extensions import override

from gateway.middleware import errors
from gateway.middleware.access_log import log_exchange
from gateway.middleware.exchange import MAX_NAME, Exchange
from gateway.middleware.request_id import HEADER, request_id_from
from gateway.server.hypercorn.context import PausedError, ServerContext
from gateway.server.hypercorn.framing import Framing
from gateway.server.hypercorn.requests import Requests
from gateway.server.hypercorn.stream import Stream
from gateway.server.hypercorn.target import Target, parse_target
from gateway.server.hypercorn.wire import Wire

MALFORMED = "client broke the protocol"
SUPPORTED_VERSIONS = (b"1.0", b"1.1")
LARGE_HEAD = 8 * 1024
"""Bytes from which a head waits for a turn: to parse it takes as long as to read a part of an upload."""
CHUNKED = b"\r\nTransfer-Encoding: chunked\r\n"
"""The header as h11 writes it when it chooses this encoding."""
LINES = b"\r\ncontent-type: application/x-ndjson\r\n"
"""The header of a body with a chunk for each line, as Ollama sends it: its clients may parse each chunk alone."""


class Http1(H11Protocol):
    """Protocol for HTTP/1.1 only, with a reader that never stops and so detects every hang-up.

    - `Upgrade` is ignored and HTTP/2 with prior knowledge is answered with 505: one cleartext HTTP/2 connection can
      end Hypercorn's whole process, and Hypercorn has no setting that disables it.
    - `Framing` splits the bytes strictly, and h11 gets only parts of the current request.
    - Pipelined bytes are kept up to a limit while the connection continues to read.
    - A body is read in turns with other connections.
    """

    connection: h11.Connection

    def __init__(self, app: ASGIApp, context: ServerContext, requests: Requests, wire: Wire) -> None:
        super().__init__(
            ASGIWrapper(cast("ASGIFramework", app)),
            context.config,
            cast("WorkerContext", context),
            cast("TaskGroup", requests),
            ConnectionState({}),
            wire.secure,
            wire.client,
            wire.server,
            self._deliver,
        )
        self._framing = Framing(context.limits.head)
        self._turns = context.turns
        self._request: h11.Request | None = None
        self._wire = wire
        self._limits = context.limits
        self._parsing = anyio.Lock(fast_acquire=True)
        self._open = True
        self._malformed = False
        self._chunked = False  # encoding of the current response's body
        self._by_line = False  # its lines are chunks
        self._head = b""  # of a response whose body has not begun: one send takes both

    async def turn(self) -> None:
        """Wait until this connection may read. Only one that uploads waits, so that hang-ups are detected at once."""
        if self._framing.in_body or not self._open:
            await self._turns.next()

    @property
    def has_begun(self) -> bool:
        """True if bytes of the next request have come."""
        return self._framing.buffered > 0

    async def received(self, data: bytes) -> None:
        """Parse bytes from the client and handle the events that they complete."""
        if self._open and not self._malformed:
            self._framing.receive(data)
            await self._parse()

    async def disconnected(self) -> None:
        """Stop parsing and send a disconnect to the running request, because the connection ended."""
        self._open = False
        await self.handle(Closed())

    async def _parse(self) -> None:
        async with self._parsing:
            try:
                with contextlib.suppress(PausedError):
                    await self._parse_parts()
            except h11.RemoteProtocolError as error:
                await self._refuse(error)
            if self._open and self._framing.is_between and self._framing.buffered > self._limits.ahead:
                await self._close("client sent too much before its turn")

    async def _parse_parts(self) -> None:
        while self._open and not self._malformed and (part := self._framing.next_part()) is not None:
            if self.connection.their_state is h11.IDLE and len(part) > LARGE_HEAD:
                self._wire.set_idle(False)  # it must not lose its place while it waits
                if not await self._gets_turn():
                    return
            self.connection.receive_data(part)
            await self._handle_events()
            if self._framing.needs_turn and not await self._gets_turn():
                return

    async def _gets_turn(self) -> bool:
        """Wait for a turn. Returns False if the client has left: the rest would be parsed for no client."""
        await self._turns.next()
        return self._open and not self._wire.has_hung_up()

    async def _refuse(self, error: h11.RemoteProtocolError) -> None:
        """Answer malformed bytes, and close the connection. The application answers those in its request's body."""
        self._malformed = True
        status, state = error.error_status_hint, self.connection.our_state
        if state is h11.SEND_RESPONSE and isinstance(self.stream, Stream):
            await self.stream.refuse_body(MALFORMED, status)
            return
        if state is h11.IDLE:
            await self._send_error_response(status)
        await self._close(MALFORMED)

    async def _deliver(self, event: Event) -> None:
        match event:
            case Updated(idle=idle):
                self._wire.set_idle(idle)
            case Closed():
                await self._close(self._close_reason())

    def _close_reason(self) -> str:
        if self._malformed or self.connection.their_state is h11.ERROR:
            return MALFORMED
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
        target = parse_target(request.method, request.target)
        if request.http_version not in SUPPORTED_VERSIONS or target is None:
            await self._send_error_response(400 if request.http_version in SUPPORTED_VERSIONS else 505)
            await self._close("request was refused")
            return
        self.stream = stream = Stream(
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
        stream.parts = self
        await stream.handle(
            Request(
                stream_id=STREAM_ID,
                headers=headers_for(target, request.headers),
                http_version=request.http_version.decode(),
                method=request.method.decode(),
                raw_path=target.path,
                state=self.connection_state,
            )
        )
        self.keep_alive_requests += 1

    @override
    async def stream_send(self, event: StreamEvent) -> None:
        """Send a part of a response. During a shutdown, responses carry `connection: close`."""
        if isinstance(event, Body):
            await self.send_part(event.data)
            return
        if isinstance(event, Response) and self.context.terminated.is_set():
            event = replace(event, headers=[*event.headers, (b"connection", b"close")])
        await super().stream_send(event)

    @property
    def takes_parts(self) -> bool:
        """True if the client has taken the head of a chunked response and all parts of its body so far."""
        sends = self._chunked and not self._head and self.connection.our_state is h11.SEND_BODY
        return sends and self._wire.has_taken_all

    def offer_part(self, data: bytes) -> None:
        """Send a part at once. Call it only if the response `takes_parts`."""
        self._wire.offer(self._framed(data))

    @override
    async def _send_h11_event(self, event: H11SendableEvent) -> None:
        data = self.connection.send(event)
        if isinstance(event, h11.Response):
            self._chunked = CHUNKED in data
            self._by_line = LINES in data
            self._head = data
        else:
            await self._write(data)

    async def _write(self, data: bytes) -> None:
        """Send bytes, behind the head if that was not sent yet."""
        head, self._head = self._head, b""
        if head or data:
            await self._wire.send(head + data)

    async def send_part(self, data: bytes) -> None:
        """Send a non-empty part of a body.

        A chunk is framed here and not by h11, which keeps no state about chunks. Its checks cost as much as the send.
        """
        if self._chunked and self.connection.our_state is h11.SEND_BODY:
            await self._write(self._framed(data))
        else:
            await self._send_h11_event(h11.Data(data=data))

    def _framed(self, data: bytes) -> bytes:
        return b"".join(map(_chunk, data.splitlines(keepends=True))) if self._by_line else _chunk(data)

    @override
    async def _send_error_response(self, status_code: int) -> None:
        # Before the head is complete, there is no request yet that this response belongs to.
        request = self._request if self.connection.our_state is h11.SEND_RESPONSE else None
        response = errors.response_for(errors.protocol_problem(status_code))
        request_id = request_id_from(request.headers if request else ())
        headers = [
            *response.raw_headers,
            (HEADER, request_id.encode()),
            *self.config.response_headers("h11"),
        ]
        await self._send_h11_event(h11.Response(status_code=status_code, headers=headers))
        if request is None or request.method != b"HEAD":
            await self._send_h11_event(h11.Data(data=bytes(response.body)))
        await self._send_h11_event(h11.EndOfMessage())
        log_exchange(self._refused(request, request_id, status_code, len(response.body)), {})

    def _refused(self, request: h11.Request | None, request_id: str, status: int, sent: int) -> Exchange:
        """Return the exchange of a request that no application gets."""
        now = anyio.current_time()
        return Exchange(
            request_id=request_id,
            method=request.method.decode()[:MAX_NAME] if request else "",
            path=request.target.partition(b"?")[0].decode("latin-1")[:MAX_NAME] if request else "",
            address=self._wire.client[0],
            began_at=now,
            ended_at=now,
            status=status,
            error=errors.INVALID_HTTP,
            sent=sent,
        )

    @override
    async def _maybe_recycle(self) -> None:
        await self._write(b"")
        if self.connection.our_state is h11.SEND_BODY and self.connection.their_http_version == b"1.0":
            self._wire.abort("response was cut short")  # on HTTP/1.0, FIN is the clean end of a response
        await super()._maybe_recycle()
        if self.connection.our_state is h11.IDLE:
            self._framing.start_next()
            if self._framing.buffered:
                self.task_group.spawn(self._parse)


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def headers_for(target: Target, headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return the headers for the application: the host of a target in absolute form replaces `Host` (3.2.2)."""
    if target.host is None:
        return list(headers)
    return [(b"host", target.host), *((name, value) for name, value in headers if name != b"host")]
