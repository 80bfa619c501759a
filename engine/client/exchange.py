"""Registry of the requests in flight: dispatch, delivery of events by key, and the wait for an engine that restarts."""

import itertools
from collections.abc import Callable, Iterable, Iterator

import anyio

from engine.client.mailbox import Mailbox
from engine.client.measurements.histogram import TOKEN_GAPS, Histogram
from engine.client.pace import QueuePace
from engine.errors import EngineError, EngineFault, RequestError, SlowReader, Unavailable
from engine.events import Event, Released
from engine.fairness.shares import Shares
from engine.info import EngineMetrics, QueuedRequest
from engine.protocol.messages import Accepted, Cancel, Embed, EndReasoning, Generate, Refused, ToEngine
from engine.request import GenerationRequest, Request

Send = Callable[[ToEngine], None]


class Exchange:
    """Routes requests and events by key. Keys are never reused, so that late events of old requests are dropped.

    A request stays registered until it has ended, even after its caller left: an engine that does not answer a cancel
    still has work.
    """

    def __init__(
        self,
        capacity: int,
        clock: Callable[[], float] = anyio.current_time,
        time: Callable[[], float] = anyio.current_time,
    ) -> None:
        """Create a registry without an engine.

        Args:
            capacity: Maximum number of requests that wait while the engine restarts.
            clock: Clock by which the patience with readers and with the engine is measured. It may stand still during
                stalls of the event loop, which are not their fault.
            time: Clock of all other times.
        """
        self.gaps = Histogram(TOKEN_GAPS)
        """Times between the tokens of each choice, in seconds."""
        self._capacity = capacity
        self._clock = clock
        self._time = time
        self._send: Send | None = None
        self._restarts = False
        self._in_flight: dict[int, Mailbox] = {}
        self._waiting: dict[Mailbox, None] = {}
        self._shares = Shares(capacity)
        self._pace = QueuePace()
        self._keys = itertools.count(1)

    @property
    def oldest_sent_at(self) -> float | None:
        """Time of sending of the oldest request in flight, by `clock`; unset if there is no request."""
        return next((mailbox.watched_since for mailbox in self._in_flight.values()), None)

    @property
    def waiting(self) -> int:
        """Number of requests that wait for an engine."""
        return len(self._waiting)

    def connect(self, send: Send) -> None:
        """Connect to an engine that is ready, and send it the requests that wait for it, in their order."""
        self._send = send
        for mailbox in self._take_waiting():
            try:
                self._dispatch(mailbox, send)
            except RequestError as error:
                mailbox.fail(error, self._time())

    def open(self, request: Request, patience: float | None) -> Mailbox:
        """Send a request and return its mailbox. Never waits: while the engine restarts, the request is sent later.

        Args:
            request: Request to send.
            patience: Seconds that an event may be pending before the request is cancelled; None sets no limit.

        Raises:
            Unavailable: The engine is not ready, and does not restart.
            Busy: Too many requests wait for the engine, or too many of this client.
            RequestError: A frame cannot carry the request.
        """
        mailbox = Mailbox(request, patience, self.gaps)
        if self._send is not None:
            self._dispatch(mailbox, self._send)
        elif not self._restarts:
            raise Unavailable("The engine is not ready.", code="engine_unavailable")
        else:
            self._shares.check_room(request.client)
            self._wait(mailbox)
        return mailbox

    def cancel(self, mailbox: Mailbox, reason: str, error: EngineError | None = None) -> None:
        """Cancel a request, unless it has ended or is already cancelled. Never waits.

        Args:
            mailbox: Mailbox of the request.
            reason: Reason of the cancel, for the log.
            error: Error for later reads from the mailbox.
        """
        if mailbox.ended or mailbox.cancelled:
            return
        now = self._time()
        mailbox.cancel(reason, error or EngineFault("The request was cancelled.", code="cancelled"), now)
        if mailbox.key is None:
            del self._waiting[mailbox]
            self._shares.leave(mailbox.request.client)
            mailbox.deliver(Released("restarting", 0, 0), now)
        elif self._send is not None:
            self._send(Cancel(mailbox.key))

    def end_reasoning(self, mailbox: Mailbox) -> bool:
        """End the reasoning of a request where it has begun. Never waits. Returns False unless the request runs."""
        runs = mailbox.started_at is not None and not (mailbox.ended or mailbox.cancelled)
        if not runs or mailbox.key is None or self._send is None:
            return False
        self._send(EndReasoning(mailbox.key))
        return True

    def accept(self, message: Accepted) -> None:
        """Deliver the acceptance of a request."""
        if mailbox := self._in_flight.get(message.key):
            mailbox.accept(message.prompt_tokens, self._time())

    def refuse(self, message: Refused, metrics: EngineMetrics | None) -> None:
        """Deliver the refusal of a request. A cancelled request still waits for the reply to its cancel."""
        mailbox = self._in_flight.get(message.key)
        if mailbox is not None and not mailbox.cancelled:
            del self._in_flight[message.key]
            mailbox.fail(message.fault.error(self.queue_seconds(mailbox.request, metrics)), self._time())

    def queue_seconds(self, request: Request, metrics: EngineMetrics | None) -> float | None:
        """Return the time until a request like this one would be served, or None if it is unknown."""
        now = self._time()
        oldest = next((mailbox.sent_at for mailbox in self._in_flight.values()), now)
        return self._pace.seconds(request, metrics, now - oldest, self._waiting_clients())

    def queued(self, keys: Iterable[int]) -> tuple[QueuedRequest, ...]:
        """Return those of the requests with these keys that still wait, in the order of the keys."""
        now = self._time()
        found = (self._in_flight.get(key) for key in keys)
        waiting = (mailbox for mailbox in found if mailbox is not None and mailbox.started_at is None)
        return tuple(
            QueuedRequest(
                position,
                mailbox.request.id,
                sum(mailbox.prompt_tokens or ()),
                mailbox.request.priority or 0,
                now - mailbox.sent_at,
            )
            for position, mailbox in enumerate(waiting, start=1)
        )

    def deliver(self, events: Iterable[tuple[int, Event]], patient: float, *, last: bool = True) -> None:
        """Deliver the events of a step. Cancels a request with a reader that is too slow.

        Args:
            events: Events in order, each with the key of its request.
            patient: Current time by `clock`.
            last: False if the events of other steps are ready. Then readers take them together.
        """
        now = self._time()
        for key, event in events:
            mailbox = self._in_flight.get(key)
            if mailbox is None:
                continue
            mailbox.deliver(event, now, last=last)
            if mailbox.ended:
                del self._in_flight[key]
                self._pace.record(mailbox)
            elif mailbox.is_overdue(patient):
                slow = SlowReader("The text was not read in time.", code="slow_reader")
                self.cancel(mailbox, "the client reads too slowly", slow)

    def disconnect(self) -> None:
        """Keep the requests that can be replayed for the next engine, and fail the others: the engine is dead."""
        lost, self._in_flight = self._in_flight, {}
        self._restarts = self._restarts or self._send is not None
        self._send = None
        for mailbox in lost.values():
            if mailbox.can_replay:
                mailbox.reset()
                self._wait(mailbox)
            else:
                error = EngineFault("The engine died while it worked on this request.", code="engine_died")
                mailbox.fail(error, self._time())

    def close(self, error: Callable[[], EngineError]) -> None:
        """Fail the requests that wait for the engine, each with an error: no further process starts."""
        self._restarts = False
        for mailbox in self._take_waiting():
            mailbox.fail(error(), self._time())

    def _wait(self, mailbox: Mailbox) -> None:
        """Let a request wait for the next engine."""
        self._waiting[mailbox] = None
        self._shares.enter(mailbox.request.client)

    def _take_waiting(self) -> Iterable[Mailbox]:
        """Remove the requests that wait, and return them in their order."""
        waiting, self._waiting = self._waiting, {}
        self._shares = Shares(self._capacity)
        return waiting

    def _waiting_clients(self) -> Iterator[str]:
        """Yield the client of each generation request that the engine has and that has not started."""
        for mailbox in self._in_flight.values():
            if mailbox.started_at is None and isinstance(mailbox.request, GenerationRequest):
                yield mailbox.request.client

    def _dispatch(self, mailbox: Mailbox, send: Send) -> None:
        key = next(self._keys)
        request = mailbox.request
        try:
            send(Generate(key, request) if isinstance(request, GenerationRequest) else Embed(key, request))
        except ValueError as error:
            raise RequestError(f"The request cannot be sent to the engine: {error}") from error
        mailbox.key, mailbox.sent_at, mailbox.watched_since = key, self._time(), self._clock()
        self._in_flight[key] = mailbox
