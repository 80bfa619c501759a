"""State of one request in flight: its pending events and its outcome."""

from collections.abc import Callable
from typing import TypeAlias

from engine.client.measurements.histogram import Histogram
from engine.client.measurements.tally import Tally
from engine.errors import EngineError, EngineFault, RequestError
from engine.events import Embedded, Event, Failed, Finished, FirstToken, Released, Started, Text
from engine.notifier import Notifier
from engine.request import Request

MOST_UNREAD = 2**19
"""Tokens and alternatives with details that the reader of a stream may leave unread, about 70 MB.

Those of its first pending event do not count: one with an echoed prompt may have more.
"""

PassOn: TypeAlias = Callable[[Text], bool]
"""Takes a text at once. Returns False if it must wait for the reader. It must not wait and must not raise."""


class Mailbox:
    """Connects the task that reads the engine's frames, which never waits, to the task that serves the request.

    A request ends once: when every part of it has finished (a choice, or an input to embed), with an error, or with the
    release after a cancel. After a cancel, all other events are dropped.
    """

    def __init__(self, request: Request, patience: float | None, gaps: Histogram) -> None:
        """Create the mailbox of a request.

        Args:
            request: Request of the caller.
            patience: Seconds that an event may be pending; None sets no limit.
            gaps: Takes the times between its tokens.
        """
        self.request = request
        """Request of the caller."""
        self.key: int | None = None
        """Id of the request in the frames; unset while it waits for a replay."""
        self.sent_at = 0.0
        """Time of sending, in seconds."""
        self.watched_since = 0.0
        """Time of sending by the clock of the patience with the engine."""
        self.accepted_at: float | None = None
        """Time of the first acceptance; unset before."""
        self.started_at: float | None = None
        """Time when the request left the queue; unset before."""
        self.ended_at = 0.0
        """Time of the end."""
        self.prompt_tokens: tuple[int, ...] | None = None
        """Number of tokens of each prompt or input; unset until the request is accepted."""
        self.ended = False
        """True once the engine has released everything that the request held."""
        self.cancelled = False
        """True if the request was cancelled before it ended."""
        self.released: Released | None = None
        """Release after a cancel, once it has arrived."""
        self.reason = ""
        """Reason of the cancel, for the log."""
        self._patience = patience
        self.replayed = False
        """True if the request was sent again to another engine."""
        self.error: EngineError | None = None
        """Error of the end or of the cancel; unset while the request runs, and after its success."""
        self.tally = Tally(request, gaps)
        """Count of its tokens."""
        self._delivered = False
        self._events: list[Text | Finished] = []
        self._vectors: dict[int, bytes] = {}
        self._pending_since: float | None = None
        self._unread = 0  # tokens and alternatives with details behind the first pending event
        self._parts_left = request.parts
        self._cancelled_at = 0.0
        self._changed = Notifier()
        self._pass_on: PassOn | None = None
        self._taking = False

    @property
    def can_replay(self) -> bool:
        """True if the request can be sent to another engine: only once, and only before its caller read an event."""
        return not (self._delivered or self.replayed or self.cancelled or self.ended)

    @property
    def release_seconds(self) -> float:
        """Time from the cancel to the end, in seconds."""
        return self.ended_at - self._cancelled_at

    def is_overdue(self, now: float) -> bool:
        """Return True if the oldest pending event has waited longer than `patience`, or too much is pending.

        Called after each delivery, so that the first call with a pending event has the time of its arrival.

        Args:
            now: Time by the clock of the patience.
        """
        if self._patience is None or not self._events:
            return False
        if self._pending_since is None:
            self._pending_since = now
        return now - self._pending_since > self._patience or self._unread > MOST_UNREAD

    def reset(self) -> None:
        """Discard all received events, so that the request can be sent again."""
        self.key = self.started_at = None
        self.replayed = True
        self.tally.reset()
        self._drop_events()
        self._vectors.clear()
        self._parts_left = self.request.parts

    def accept(self, prompt_tokens: tuple[int, ...], now: float) -> None:
        """Record the acceptance of the request."""
        self.prompt_tokens = prompt_tokens
        self.accepted_at = now if self.accepted_at is None else self.accepted_at
        self._changed.notify()

    def deliver(self, event: Event, now: float, *, last: bool = True) -> None:
        """Process an event of the engine. Never waits, never raises.

        Args:
            event: Event.
            now: Time in seconds.
            last: False if later events are ready, with which a text is taken together.
        """
        match event:
            case Released():
                self.released = event
                self.fail(EngineFault("The request was cancelled.", code="cancelled"), now)
            case Finished() | Embedded():
                self._finish_part(event, now)
            case _ if self.cancelled:
                pass
            case Text():
                if self._passes(event, now, last=last):
                    return
                self._keep(event)
            case Started():
                self.started_at = now
            case FirstToken():  # no task waits for it
                self.tally.begin_token(now)
                return
            case Failed(message, code, None):
                self.fail(EngineFault(message, code=code), now)
            case Failed(message, code, param):
                self.fail(RequestError(message, code=code, param=param), now)
        self._changed.notify()

    def fail(self, error: EngineError, now: float) -> None:
        """End the request. Readers get `error`, or the error of an earlier cancel."""
        self.error = self.error or error
        self.ended = True
        self.ended_at = now
        self._changed.notify()

    def cancel(self, reason: str, error: EngineError, now: float) -> None:
        """Drop pending events and record the cancel. Later reads raise `error`."""
        self.cancelled = True
        self.reason = reason
        self.error = error
        self._cancelled_at = now
        self._drop_events()
        self._changed.notify()

    async def accepted(self) -> tuple[int, ...]:
        """Wait for the acceptance and return `prompt_tokens`.

        Raises:
            EngineError: The request failed.
        """
        await self._wait_until(lambda: self.prompt_tokens is not None)
        return self.prompt_tokens or ()

    async def started(self) -> None:
        """Wait until the request has left the queue.

        Raises:
            EngineError: The request failed.
        """
        await self._wait_until(lambda: self.started_at is not None or not self._parts_left)

    def pass_on(self, to: PassOn) -> None:
        """Pass texts to a function while `take` waits for them. The wait goes on if it takes them."""
        self._pass_on = to

    async def take(self) -> list[Text | Finished]:
        """Wait for events and return all pending ones, in order; [] after the last event.

        Raises:
            EngineError: The request failed. Raised only after all earlier events were returned, or dropped by a cancel.
        """
        self._taking = True
        try:
            while not self._events and self._parts_left and self.error is None:
                await self._changed.wait()
        finally:
            self._taking = False
        if not self._events and self.error is not None:
            raise self.error
        return self._drain()

    async def outcomes(self) -> tuple[Finished, ...]:
        """Wait for the end of every choice and return the ends in the order of the choices, each with the whole text.

        Raises:
            EngineError: The request failed.
        """
        await self._wait_until(lambda: not self._parts_left)
        events = self._drain()
        texts: dict[int, list[Text]] = {}
        for text in (event for event in events if isinstance(event, Text)):
            texts.setdefault(text.choice, []).append(text)
        ends = sorted((event for event in events if isinstance(event, Finished)), key=lambda end: end.choice)
        return tuple(end.after(texts[end.choice]) if end.choice in texts else end for end in ends)

    async def vectors(self) -> tuple[bytes, ...]:
        """Wait for the vector of every input and return the vectors in order.

        Raises:
            EngineError: The request failed.
        """
        await self._wait_until(lambda: not self._parts_left)
        return tuple(self._vectors[index] for index in range(self.request.parts))

    async def wait_ended(self) -> None:
        """Wait until the engine has released everything that the request held."""
        while not self.ended:
            await self._changed.wait()

    async def _wait_until(self, holds: Callable[[], bool]) -> None:
        while self.error is None and not holds():
            await self._changed.wait()
        if self.error is not None:
            raise self.error

    def _finish_part(self, event: Finished | Embedded, now: float) -> None:
        """Count a part, which may have ended while a cancel was on its way, and keep it for the reader."""
        self.tally.end_part(event, now)
        if self.cancelled:
            return
        if isinstance(event, Finished):
            self._events.append(event)
        else:
            self._vectors[event.input] = event.vector
        self._parts_left -= 1
        self.ended = self._parts_left == 0
        self.ended_at = now

    def _keep(self, event: Text) -> None:
        """Keep a text for the reader, and count its details behind those of others."""
        if self._events:
            self._unread += sum(1 + len(detail.top) for detail in event.details)
        self._events.append(event)

    def _passes(self, event: Text, now: float, *, last: bool) -> bool:
        """Time a text. Return True if it was passed on, while the reader waits for it."""
        if event.progress is None:
            self.tally.time_text(event, now)
        waits = self._taking and last and not self._events
        if not waits or self._pass_on is None or not self._pass_on(event):
            return False
        self._delivered = True
        return True

    def _drain(self) -> list[Text | Finished]:
        self._delivered = self._delivered or bool(self._events)
        events = self._events.copy()
        self._drop_events()
        return events

    def _drop_events(self) -> None:
        self._events.clear()
        self._pending_since = None
        self._unread = 0
