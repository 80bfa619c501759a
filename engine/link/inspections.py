"""Questions about the slots, and their answers."""

import itertools

from engine.errors import Unavailable
from engine.link import wire
from engine.link.exchange import Send
from engine.link.notifier import Notifier


class Inspections:
    """Joins those who ask to the task that reads the engine's frames."""

    def __init__(self) -> None:
        self._send: Send | None = None
        self._answers: dict[int, wire.Inspected | None] = {}
        self._tickets = itertools.count(1)
        self._news = Notifier()

    def connect(self, send: Send) -> None:
        """An engine is ready."""
        self._send = send

    async def ask(self) -> wire.Inspected:
        """Ask, and wait for the answer. Raises `Unavailable` if there is no engine, or it dies meanwhile."""
        ticket = next(self._tickets)
        if self._send is not None:
            self._answers[ticket] = None
            self._send(wire.Inspect(ticket))
        try:
            while ticket in self._answers:
                if answer := self._answers[ticket]:
                    return answer
                await self._news.wait()
        finally:
            self._answers.pop(ticket, None)
        raise Unavailable("The engine ended.", code="engine_unavailable")

    def answer(self, message: wire.Inspected) -> None:
        """Pass on an answer; nobody may wait for it any more."""
        if message.ticket in self._answers:
            self._answers[message.ticket] = message
            self._news.notify()

    def disconnect(self) -> None:
        """The engine is dead: no answer will come."""
        self._send = None
        self._answers.clear()
        self._news.notify()
