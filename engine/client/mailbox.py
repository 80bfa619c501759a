"""One request in flight: what came for it and was not taken yet, and how it ended."""

from engine.client.notifier import Notifier
from engine.errors import EngineError, EngineFault
from engine.events import Embedded, Event, Failed, Finished, Released, Started, Text
from engine.request import Request


class Mailbox:
    """Joins the task that reads the engine's frames, which never waits, to the one that serves the request.

    It ends once: every part of it finished (a choice, or an input to embed), or an error, or the release that answers
    a cancel. After a cancel nothing but the release counts.

    Attributes:
        request: what was asked.
        key: its name in the frames; None while it waits for an engine to be sent to.
        sent_at: when it was sent, in seconds.
        prompt_tokens: tokens of each prompt or input, once accepted.
        ended: whether the engine holds nothing for it any more.
        cancelled: whether it was cancelled before it ended.
        released: the release that answered the cancel, if one did.
        reason: who cancelled and why, once cancelled.
    """

    def __init__(self, request: Request, patience: float | None) -> None:
        """`patience` bounds how long an event may lie untaken, in seconds; None does not."""
        self.request = request
        self.key: int | None = None
        self.sent_at = 0.0
        self.prompt_tokens: tuple[int, ...] | None = None
        self.ended = False
        self.cancelled = False
        self.released: Released | None = None
        self.reason = ""
        self._patience = patience
        self._started = False
        self._shown = False
        self._replayed = False
        self._error: EngineError | None = None
        self._events: list[Text | Finished] = []
        self._vectors: dict[int, bytes] = {}
        self._oldest = 0.0
        self._open = request.parts
        self._cancelled_at = 0.0
        self._ended_at = 0.0
        self._news = Notifier()

    @property
    def error(self) -> EngineError | None:
        """What it ended with, or was cancelled with; None while it goes on, and once every part finished."""
        return self._error

    @property
    def may_replay(self) -> bool:
        """Whether it can be sent to another engine as if nothing had happened. Once, and only if nothing was shown."""
        return not (self._shown or self._replayed or self.cancelled or self.ended)

    @property
    def release_seconds(self) -> float:
        """From the notice of the cancel to its end."""
        return self._ended_at - self._cancelled_at

    def overdue(self, now: float) -> bool:
        """Whether its reader has lost the right to more: its oldest event lies longer than its patience."""
        return self._patience is not None and bool(self._events) and now - self._oldest > self._patience

    def rewind(self) -> None:
        """Forget what came, so that it can be sent again."""
        self.key = None
        self._replayed = True
        self._events.clear()
        self._vectors.clear()
        self._open = self.request.parts

    def accept(self, prompt_tokens: tuple[int, ...]) -> None:
        """The engine took it."""
        self.prompt_tokens = prompt_tokens
        self._news.notify()

    def deliver(self, event: Event, now: float) -> None:
        """Put an event in. Never waits, never raises."""
        match event:
            case Released():
                self.released = event
                self.fail(EngineFault("The request was cancelled.", code="cancelled"), now)
            case _ if self.cancelled:
                pass
            case Text():
                self._put(event, now)
            case Finished():
                self._put(event, now)
                self._end_part()
            case Embedded(index, vector):
                self._vectors[index] = vector
                self._end_part()
            case Started():
                self._started = True
            case Failed(message, code):
                self.fail(EngineFault(message, code=code), now)
        self._news.notify()

    def fail(self, error: EngineError, now: float) -> None:
        """End it. Who waits for more gets `error`, or the one that its cancel gave."""
        self._error = self._error or error
        self.ended = True
        self._ended_at = now
        self._news.notify()

    def cancel(self, reason: str, error: EngineError, now: float) -> None:
        """Nobody wants it any more; `error` is for who asks for it all the same."""
        self.cancelled = True
        self.reason = reason
        self._error = error
        self._cancelled_at = now
        self._events.clear()
        self._news.notify()

    async def accepted(self) -> tuple[int, ...]:
        """Wait until the engine took it; gives `prompt_tokens`. Raises the error it ended with."""
        while self.prompt_tokens is None and self._error is None:
            await self._news.wait()
        if self._error is not None:
            raise self._error
        return self.prompt_tokens or ()

    async def started(self) -> None:
        """Wait until it left the queue. Raises the error it ended with."""
        while not self._started and self._open and self._error is None:
            await self._news.wait()
        if self._error is not None:
            raise self._error

    async def take(self) -> list[Text | Finished]:
        """Everything that lies here, in order; waits for something; [] once all was taken.

        Raises the error it ended with, after what came before.
        """
        while not self._events and self._open and self._error is None:
            await self._news.wait()
        if not self._events and self._error is not None:
            raise self._error
        return self._hand_over()

    async def outcomes(self) -> tuple[Finished, ...]:
        """Wait for every choice's end; gives the ends in order of choice. Raises the error it ended with."""
        await self._all_parts()
        ends = (event for event in self._hand_over() if isinstance(event, Finished))
        return tuple(sorted(ends, key=lambda end: end.choice))

    async def vectors(self) -> tuple[bytes, ...]:
        """Wait for every input's vector; gives them in order. Raises the error it ended with."""
        await self._all_parts()
        return tuple(self._vectors[index] for index in range(self.request.parts))

    async def end(self) -> None:
        """Wait until the engine holds nothing for it."""
        while not self.ended:
            await self._news.wait()

    async def _all_parts(self) -> None:
        while self._open and self._error is None:
            await self._news.wait()
        if self._error is not None:
            raise self._error

    def _end_part(self) -> None:
        self._open -= 1
        self.ended = self._open == 0

    def _put(self, event: Text | Finished, now: float) -> None:
        if not self._events:
            self._oldest = now
        self._events.append(event)

    def _hand_over(self) -> list[Text | Finished]:
        self._shown = self._shown or bool(self._events)
        events, self._events = self._events, []
        return events
