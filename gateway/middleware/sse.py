"""A response of server-sent events that sends itself."""

import math
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TypeAlias

import anyio
from starlette.types import Receive, Scope, Send

from gateway.middleware import errors
from gateway.middleware.caller import Caller, caller_of
from gateway.middleware.errors import Problem

KEEP_ALIVE = b": keep-alive\n\n"
DONE = b"data: [DONE]\n\n"
FINAL_EVENT_TIMEOUT = 2.0
HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # asks nginx not to hold events back
]

NextEvents: TypeAlias = Callable[[], Awaitable[Sequence[bytes]]]
"""Waits for events, encoded, and gives all that are ready; none means the end. Cancelled, it must lose none."""

EventSource: TypeAlias = Callable[[], AbstractAsyncContextManager[NextEvents]]
"""Opens what the events come from. Leaving it must release everything it holds."""


class EventStream:
    """A pure ASGI response: one `send` for all events that are ready.

    The head waits for the first events or the first keep-alive; until then a failure is raised and can still become a
    status. A failure after the head is one error event and an end without `end`. A keep-alive is a comment line: it
    keeps proxies open and lets the kernel notice a peer that vanished.

    The source is opened and left here, in the request's own task: never by a generator's `finally`, which may run only
    at garbage collection. It is left before the last words are sent, so that they delay no release.
    """

    def __init__(
        self,
        source: EventSource,
        *,
        keep_alive: float = 10.0,
        end: bytes = DONE,
        encode_failure: Callable[[Problem], bytes] | None = None,
    ) -> None:
        """Make a response.

        Args:
            source: opens what the events come from.
            keep_alive: seconds of silence after which a comment line is sent.
            end: is sent after the last event of a stream that went well.
            encode_failure: the last events of a stream that failed. By default one event with the API's error.
        """
        self._source = source
        self._keep_alive = keep_alive
        self._end = end
        self._encode_failure = encode_failure
        self._begun = False

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """Send the whole response. Waits for the source and for the client. Needs `RequestScope` around it."""
        caller = caller_of(scope)
        try:
            async with self._source() as next_events:
                await self._send_events(next_events, send)
        except anyio.get_cancelled_exc_class():
            if self._begun and caller.closing.error is not None:
                with anyio.move_on_after(FINAL_EVENT_TIMEOUT, shield=True):
                    await self._fail(caller.closing.error, caller, send)
            raise
        except Exception as error:
            if not self._begun:
                raise
            await self._fail(error, caller, send)
        else:
            await self._send(self._end, send, last=True)

    async def _send_events(self, next_events: NextEvents, send: Send) -> None:
        """Send all events, and a comment in each silence.

        A silence is a cancel scope, and one for each event would cost as much as the sending. So it is made anew only
        once it has been filled. It never cancels a send, nor loses events that come at the moment it ends.
        """
        while True:
            events = None
            with anyio.move_on_after(self._keep_alive) as silence:
                while (events := await next_events()) and not silence.cancel_called:
                    silence.deadline = math.inf
                    await self._send(b"".join(events), send)
                    silence.deadline, events = anyio.current_time() + self._keep_alive, None
            if events is None:
                await self._send(KEEP_ALIVE, send)
            elif events:
                await self._send(b"".join(events), send)
            else:
                return

    async def _fail(self, error: Exception, caller: Caller, send: Send) -> None:
        problem = errors.report(error)
        if self._encode_failure is not None:
            last_events = self._encode_failure(problem)
        else:
            last_events = b"data: %b\n\n" % caller.encode_error(problem)
        await self._send(last_events, send, last=True)

    async def _send(self, data: bytes, send: Send, *, last: bool = False) -> None:
        if not self._begun:
            self._begun = True
            await send({"type": "http.response.start", "status": 200, "headers": list(HEADERS)})
        await send({"type": "http.response.body", "body": data, "more_body": not last})
