"""Registry of the requests in flight: dispatch, delivery of events by key, and replay after the engine died."""

import itertools
from collections.abc import Callable, Iterable

import anyio

from engine.client.mailbox import Mailbox
from engine.client.refusals import error_from
from engine.errors import EngineError, EngineFault, RequestError, SlowReader, Unavailable
from engine.events import Event, Released
from engine.protocol.messages import Accepted, Cancel, Embed, Generate, Refused, ToEngine
from engine.request import GenerationRequest, Request

Send = Callable[[ToEngine], None]


class Exchange:
    """Routes requests and events by key. Keys are never reused, so that late events of old requests are dropped.

    A request stays registered until it has ended, even after its caller left: an engine that does not answer a cancel
    still has work.
    """

    def __init__(self, clock: Callable[[], float] = anyio.current_time) -> None:
        """Create an empty registry.

        Args:
            clock: Clock by which the patience with readers is measured. It may stand still during stalls of the event
                loop, which are not the readers' fault.
        """
        self._clock = clock
        self._send: Send | None = None
        self._in_flight: dict[int, Mailbox] = {}
        self._to_replay: list[Mailbox] = []
        self._keys = itertools.count(1)

    @property
    def oldest_sent_at(self) -> float | None:
        """Time of sending of the oldest request in flight; None if there is no request."""
        return next((mailbox.sent_at for mailbox in self._in_flight.values()), None)

    def connect(self, send: Send) -> None:
        """Connect to an engine that is ready, and send it the requests that wait for a replay, in their order."""
        self._send = send
        waiting, self._to_replay = self._to_replay, []
        for mailbox in waiting:
            self._dispatch(mailbox, send)

    def open(self, request: Request, patience: float | None) -> Mailbox:
        """Send a request and return its mailbox. Never waits.

        Args:
            request: Request to send.
            patience: Seconds that an event may be pending before the request is cancelled; None sets no limit.

        Raises:
            Unavailable: The engine is not ready.
            RequestError: A frame cannot carry the request.
        """
        if self._send is None:
            raise Unavailable("The engine is not ready.", code="engine_unavailable")
        mailbox = Mailbox(request, patience)
        try:
            self._dispatch(mailbox, self._send)
        except ValueError as error:
            raise RequestError(f"The request cannot be sent to the engine: {error}") from error
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
        now = self._clock()
        mailbox.cancel(reason, error or EngineFault("The request was cancelled.", code="cancelled"), now)
        if mailbox.key is None:
            self._to_replay.remove(mailbox)
            mailbox.deliver(Released("restarting", 0, 0), now)
        elif self._send is not None:
            self._send(Cancel(mailbox.key))

    def accept(self, message: Accepted) -> None:
        """Deliver the acceptance of a request."""
        if mailbox := self._in_flight.get(message.key):
            mailbox.accept(message.prompt_tokens)

    def refuse(self, message: Refused) -> None:
        """Deliver the refusal of a request. A cancelled request still waits for the reply to its cancel."""
        mailbox = self._in_flight.get(message.key)
        if mailbox is not None and not mailbox.cancelled:
            del self._in_flight[message.key]
            mailbox.fail(error_from(message), self._clock())

    def deliver(self, events: Iterable[tuple[int, Event]]) -> None:
        """Deliver the events of a step. Cancels a request with a reader that is too slow."""
        now = self._clock()
        for key, event in events:
            mailbox = self._in_flight.get(key)
            if mailbox is None:
                continue
            mailbox.deliver(event, now)
            if mailbox.ended:
                del self._in_flight[key]
            elif mailbox.is_overdue(now):
                slow = SlowReader("The text was not read in time.", code="slow_reader")
                self.cancel(mailbox, "the client reads too slowly", slow)

    def disconnect(self) -> None:
        """Keep the requests that can be replayed for the next engine, and fail the others: the engine is dead."""
        lost, self._in_flight, self._send = self._in_flight, {}, None
        for mailbox in lost.values():
            if mailbox.can_replay:
                mailbox.reset()
                self._to_replay.append(mailbox)
            else:
                error = EngineFault("The engine died while it worked on this request.", code="engine_died")
                mailbox.fail(error, self._clock())

    def close(self) -> None:
        """Fail the requests that wait for a replay: no further engine process starts."""
        waiting, self._to_replay = self._to_replay, []
        for mailbox in waiting:
            error = Unavailable("The engine was stopped.", code="engine_unavailable")
            mailbox.fail(error, self._clock())

    def _dispatch(self, mailbox: Mailbox, send: Send) -> None:
        key = next(self._keys)
        request = mailbox.request
        send(Generate(key, request) if isinstance(request, GenerationRequest) else Embed(key, request))
        mailbox.key, mailbox.sent_at = key, anyio.current_time()
        self._in_flight[key] = mailbox
