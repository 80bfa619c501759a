"""Response that streams server-sent events."""

from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TypeAlias

import anyio
from starlette.types import Receive, Scope, Send

from gateway.middleware import errors
from gateway.middleware.caller import Caller, caller_of
from gateway.middleware.errors import Problem
from gateway.middleware.exchange import Exchange
from gateway.middleware.streams.blocks import blocks
from gateway.middleware.streams.direct import DirectEvents, DirectSend
from gateway.middleware.streams.line_ends import on_one_line
from gateway.middleware.streams.silence import Silence

KEEP_ALIVE = b": keep-alive\n\n"
DONE = b"data: [DONE]\n\n"
FINAL_EVENT_TIMEOUT = 2.0
"""Seconds to send the error event of a cancelled stream."""
HEADERS = [
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # asks nginx not to hold events back
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Framing:
    """Format of a stream. The defaults are those of server-sent events of OpenAI's API."""

    media: str = "text/event-stream; charset=utf-8"
    """Media type."""
    event_end: bytes = b"\n\n"
    """End of each event."""
    ping: bytes = KEEP_ALIVE
    """Bytes after a silence, between two events."""
    failure: bytes = b"data: %b\n\n"
    """Last event of a failed stream, with a place for the API's error."""


EVENTS = Framing()
"""Server-sent events."""
LINES = Framing(media="application/x-ndjson", event_end=b"\n", ping=b" ", failure=b"%b\n")
"""Lines of JSON. They have no comments, so a ping is a space before the next line."""

NextEvents: TypeAlias = Callable[[], Awaitable[Iterable[bytes]]]
"""Waits for events and returns all that are ready, in pieces that may be encoded as they are sent. Returns an empty
sequence at the end.

It must not lose an event when it is cancelled.
"""

EventSource: TypeAlias = Callable[[], AbstractAsyncContextManager[NextEvents]]
"""Opens the source of a stream's events. Its exit must release all resources of the source."""


class _DirectSink:
    """Sends events at once, while the task of the stream waits for them."""

    silence: Silence
    """Current silence of the stream, which an event interrupts."""

    def __init__(self, direct: DirectSend, exchange: Exchange) -> None:
        self._direct = direct
        self._exchange = exchange

    @property
    def ready(self) -> bool:
        return self._direct.ready

    def send(self, pieces: Iterable[bytes]) -> None:
        data = on_one_line(b"".join(pieces))
        if data:
            self._exchange.count_sent(data)
            self._direct.offer(data)
            self.silence.begin()


class EventStream:
    """Pure ASGI response that uses one `send` for all events that are ready, or for each block of them.

    The head waits for the first events or the first keep-alive. Until then a failure is raised and can still become an
    error status. A failure after the head is sent as one error event, and the stream ends without `end`. A keep-alive
    is a comment line: it keeps proxies from closing the connection, and lets the kernel detect a peer that vanished.

    The source is opened and closed here, in the request's own task. A generator's `finally` never closes it, because
    that may run only at garbage collection. It is closed before the final event is sent, so that a slow client does not
    delay the release.
    """

    def __init__(
        self,
        source: EventSource,
        *,
        keep_alive: float = 10.0,
        end: bytes = DONE,
        encode_failure: Callable[[Problem], bytes] | None = None,
        after_failure: Callable[[], Awaitable[None]] | None = None,
        status: Callable[[], Awaitable[str]] | None = None,
        framing: Framing = EVENTS,
    ) -> None:
        """Create a response.

        Args:
            source: Opens the source of the events.
            keep_alive: Seconds of silence after which a comment line is sent.
            end: Bytes after the last event of a successful stream.
            encode_failure: Returns the last events of a failed stream. By default the format's, with the API's error.
            after_failure: Called with the failed stream's last events encoded and not yet sent. Is not interrupted, and
                must take a bounded time.
            status: Returns the text of the next comment line, without line breaks. If it is empty, as by default, the
                line is the ping of the format. Events wait for it, so that it must be quick.
            framing: Format of the stream.
        """
        self._source = source
        self._keep_alive = keep_alive
        self._end = end
        self._encode_failure = encode_failure
        self._after_failure = after_failure
        self._status = status
        self.framing = framing
        """Format of the stream."""
        self._headers = [(b"content-type", framing.media.encode()), *HEADERS]
        self._begun = False
        self._whole = True
        self._pieces: Iterator[bytes] = iter(())

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """Send the whole response. Waits for the source and for the client. Must run inside `RequestScope`."""
        caller = caller_of(scope)
        try:
            async with self._source() as next_events:
                await self._send_events(next_events, send, caller)
        except anyio.get_cancelled_exc_class():
            if self._begun and (error := caller.closed().error) is not None:
                with anyio.CancelScope(shield=True):
                    last_events = await self._failure(error, caller)
                with anyio.move_on_after(FINAL_EVENT_TIMEOUT, shield=True):
                    await self._send(last_events, send, last=True)
            raise
        except Exception as failure:
            if not self._begun:
                raise
            await self._send(await self._failure(failure, caller), send, last=True)
        else:
            await self._send(self._end, send, last=True)

    async def _send_events(self, next_events: NextEvents, send: Send, caller: Caller) -> None:
        """Send all events, and a comment after each period of silence.

        The end of a silence never cancels a send, and never loses events that arrive at the same moment.
        """
        sink = None if caller.direct is None else _DirectSink(caller.direct, caller.exchange)
        if sink is not None and isinstance(next_events, DirectEvents):
            next_events.pass_on(sink)
        while True:
            events = None
            with caller.silences.watched(self._keep_alive) as silence:
                if sink is not None:
                    sink.silence = silence
                while (events := await next_events()) and not silence.over:
                    await self._send_blocks(events, send, silence)
                    events = None
            if events is None:
                await self._send(await self._comment(), send)
            elif events:
                await self._send_blocks(events, send, silence)
            else:
                return

    async def _comment(self) -> bytes:
        status = "" if self._status is None else await self._status()
        return b": %b\n\n" % status.encode() if status else self.framing.ping

    async def _send_blocks(self, events: Iterable[bytes], send: Send, silence: Silence) -> None:
        """Send events. They interrupt the silence, unless they have no bytes: a parser may hold them back for long."""
        self._pieces = iter(events)
        for block in blocks(self._pieces):
            silence.interrupt()
            await self._send(block, send)
            silence.begin()

    def _rest(self) -> bytes:
        """Return the rest of an event whose first pieces were in the last block."""
        rest: list[bytes] = []
        if not self._whole:
            for piece in self._pieces:
                rest.append(piece)
                if piece.endswith(self.framing.event_end):
                    break
        return b"".join(rest)

    async def _failure(self, error: Exception, caller: Caller) -> bytes:
        """Return the last bytes of a failed stream."""
        problem = caller.conventions.adapt(errors.report(error))
        caller.exchange.error = problem.code or ""
        if self._encode_failure is not None:
            last_events = self._encode_failure(problem)
        else:
            last_events = self.framing.failure % caller.conventions.encode_error(problem)
        if self._after_failure is not None:
            await self._after_failure()
        return self._rest() + last_events

    async def _send(self, data: bytes, send: Send, *, last: bool = False) -> None:
        if not self._begun:
            await send({"type": "http.response.start", "status": 200, "headers": self._headers})
            self._begun = True
        self._whole = data.endswith(self.framing.event_end)
        await send({"type": "http.response.body", "body": on_one_line(data), "more_body": not last})
