"""Questions to the engine, and their answers."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import anyio

from engine.client.exchange import Send
from engine.client.refusals import error_of
from engine.errors import RequestError, Unavailable
from engine.protocol import wire

_Answer = TypeVar("_Answer", wire.Inspected, wire.Tokenized, wire.Detokenized)


@dataclass(slots=True)
class _Asked:
    """A question that was sent.

    Attributes:
        answer: None until it comes.
        settled: set once it is there, or will never be.
    """

    answer: wire.Answer | wire.Declined | None = None
    settled: anyio.Event = field(default_factory=anyio.Event)


class Questions:
    """Joins those who ask to the task that reads the engine's frames. An answer wakes nobody but who asked for it."""

    def __init__(self) -> None:
        self._send: Send | None = None
        self._asked: dict[int, _Asked] = {}
        self._tickets = itertools.count(1)

    def connect(self, send: Send) -> None:
        """An engine is ready."""
        self._send = send

    async def ask(self, question: Callable[[int], wire.Question], kind: type[_Answer]) -> _Answer:
        """Ask, and wait for the answer; whoever leaves before it takes the question back.

        Args:
            question: makes the message, of the ticket that it is given.
            kind: the answer's.

        Raises `Unavailable` if there is no engine, or it dies meanwhile, and what the engine declines with:
        `RequestError` for one that has no answer or that no frame can carry.
        """
        if self._send is None:
            raise _ended()
        ticket = next(self._tickets)
        try:
            self._send(question(ticket))
        except ValueError as error:
            raise RequestError(f"The request cannot be sent to the engine: {error}") from error
        asked = self._asked[ticket] = _Asked()
        try:
            await asked.settled.wait()
        finally:
            self._forget(ticket)
        if isinstance(asked.answer, wire.Declined):
            raise error_of(asked.answer)
        if not isinstance(asked.answer, kind):
            raise _ended()
        return asked.answer

    def answer(self, message: wire.Answer | wire.Declined) -> None:
        """Pass on an answer; nobody may wait for it any more."""
        if asked := self._asked.get(message.ticket):
            asked.answer = message
            asked.settled.set()

    def disconnect(self) -> None:
        """The engine is dead: no answer will come."""
        self._send = None
        lost, self._asked = self._asked, {}
        for asked in lost.values():
            asked.settled.set()

    def _forget(self, ticket: int) -> None:
        asked = self._asked.pop(ticket, None)
        if asked is not None and asked.answer is None and self._send is not None:
            self._send(wire.Withdraw(ticket))


def _ended() -> Unavailable:
    return Unavailable("The engine ended.", code="engine_unavailable")
