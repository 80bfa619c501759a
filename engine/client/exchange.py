"""All requests in flight: frames out, news in by key, and what becomes of them when the engine dies."""

import itertools
from collections.abc import Callable, Iterable

import anyio

from engine.client.mailbox import Mailbox
from engine.client.refusals import error_of
from engine.errors import EngineError, EngineFault, RequestError, SlowReader, Unavailable
from engine.events import Event, Released
from engine.protocol.messages import Accepted, Cancel, Embed, Generate, Refused, ToEngine
from engine.request import GenerationRequest, Request

Send = Callable[[ToEngine], None]


class Exchange:
    """Names each request by a key that is never used twice, so that late news for an old one finds nobody.

    A request stays here until it has ended, even if nobody waits for it any more: an engine that does not answer
    a cancel is an engine with work.
    """

    def __init__(self) -> None:
        self._send: Send | None = None
        self._in_flight: dict[int, Mailbox] = {}
        self._to_replay: list[Mailbox] = []
        self._keys = itertools.count(1)

    @property
    def oldest(self) -> float | None:
        """When the oldest request that has not ended was sent; None if there is none."""
        return next((mailbox.sent_at for mailbox in self._in_flight.values()), None)

    def connect(self, send: Send) -> None:
        """An engine is ready: what waited for one is sent, in the old order."""
        self._send = send
        waiting, self._to_replay = self._to_replay, []
        for mailbox in waiting:
            self._dispatch(mailbox, send)

    def open(self, request: Request, patience: float | None) -> Mailbox:
        """Send a request. Never waits. `patience` bounds how long its news may lie untaken, in seconds.

        Raises `Unavailable` without an engine, and `RequestError` for what no frame can carry.
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
        """Tell the engine, once, that nobody waits for a request. Never waits; nothing to do for one that has ended.

        `error` is for who asks the mailbox for more all the same.
        """
        if mailbox.ended or mailbox.cancelled:
            return
        now = anyio.current_time()
        mailbox.cancel(reason, error or EngineFault("The request was cancelled.", code="cancelled"), now)
        if mailbox.key is None:
            self._to_replay.remove(mailbox)
            mailbox.deliver(Released("restarting", 0, 0), now)
        elif self._send is not None:
            self._send(Cancel(mailbox.key))

    def accept(self, message: Accepted) -> None:
        """Pass on that a request was accepted."""
        if mailbox := self._in_flight.get(message.key):
            mailbox.accept(message.prompt_tokens)

    def refuse(self, message: Refused) -> None:
        """Pass on that a request was refused. The answer to a cancel that crossed with it is still to come."""
        mailbox = self._in_flight.get(message.key)
        if mailbox is not None and not mailbox.cancelled:
            del self._in_flight[message.key]
            mailbox.fail(error_of(message), anyio.current_time())

    def deliver(self, events: Iterable[tuple[int, Event]], now: float) -> None:
        """Pass on the news of a step. A reader that has not kept up is cut off."""
        for key, event in events:
            mailbox = self._in_flight.get(key)
            if mailbox is None:
                continue
            mailbox.deliver(event, now)
            if mailbox.ended:
                del self._in_flight[key]
            elif mailbox.overdue(now):
                slow = SlowReader("The text was not read in time.", code="slow_reader")
                self.cancel(mailbox, "the client reads too slowly", slow)

    def disconnect(self) -> None:
        """The engine is dead, and with it all that it held. What can be replayed waits for the next one."""
        lost, self._in_flight, self._send = self._in_flight, {}, None
        for mailbox in lost.values():
            if mailbox.may_replay:
                mailbox.rewind()
                self._to_replay.append(mailbox)
            else:
                error = EngineFault("The engine died while it worked on this request.", code="engine_died")
                mailbox.fail(error, anyio.current_time())

    def close(self) -> None:
        """No engine will come any more: fail what is left."""
        waiting, self._to_replay = self._to_replay, []
        for mailbox in waiting:
            error = Unavailable("The engine was stopped.", code="engine_unavailable")
            mailbox.fail(error, anyio.current_time())

    def _dispatch(self, mailbox: Mailbox, send: Send) -> None:
        key = next(self._keys)
        request = mailbox.request
        send(Generate(key, request) if isinstance(request, GenerationRequest) else Embed(key, request))
        mailbox.key, mailbox.sent_at = key, anyio.current_time()
        self._in_flight[key] = mailbox
