"""Queries to the engine, and their answers."""

import itertools
from dataclasses import dataclass, field
from typing import cast

import anyio

from engine.client.exchange import Send
from engine.client.refusals import error_of
from engine.errors import RequestError, Unavailable
from engine.protocol.messages import Answered, AnswerT, AnyQuery, Ask, CancelQuery, Query, QueryFailed


@dataclass(slots=True)
class _Pending:
    """A query that was sent."""

    reply: Answered | QueryFailed | None = None
    """None until it comes."""
    settled: anyio.Event = field(default_factory=anyio.Event)
    """Set once the reply is there, or will never come."""


class Queries:
    """Joins the tasks that ask to the task that reads the engine's frames. A reply wakes only the task that asked."""

    def __init__(self) -> None:
        self._send: Send | None = None
        self._pending: dict[int, _Pending] = {}
        self._ids = itertools.count(1)

    def connect(self, send: Send) -> None:
        """Send queries to an engine that is ready."""
        self._send = send

    async def ask(self, query: Query[AnswerT]) -> AnswerT:
        """Send a query and wait for its answer. Cancelling the wait cancels the query.

        Raises:
            Unavailable: There is no engine, or it ended before it answered.
            RequestError: The query has no answer, or no frame can carry it.
        """
        if self._send is None:
            raise _ended()
        query_id = next(self._ids)
        try:
            self._send(Ask(query_id, cast("AnyQuery", query)))
        except ValueError as error:
            raise RequestError(f"The request cannot be sent to the engine: {error}") from error
        pending = self._pending[query_id] = _Pending()
        try:
            await pending.settled.wait()
        finally:
            self._forget(query_id)
        if pending.reply is None:
            raise _ended()
        if isinstance(pending.reply, QueryFailed):
            raise error_of(pending.reply)
        return cast("AnswerT", pending.reply.answer)

    def settle(self, reply: Answered | QueryFailed) -> None:
        """Pass on a reply. Does nothing if its query was cancelled."""
        if pending := self._pending.get(reply.query_id):
            pending.reply = reply
            pending.settled.set()

    def disconnect(self) -> None:
        """Fail all queries: the engine ended."""
        self._send = None
        lost, self._pending = self._pending, {}
        for pending in lost.values():
            pending.settled.set()

    def _forget(self, query_id: int) -> None:
        pending = self._pending.pop(query_id, None)
        if pending is not None and pending.reply is None and self._send is not None:
            self._send(CancelQuery(query_id))


def _ended() -> Unavailable:
    return Unavailable("The engine ended.", code="engine_unavailable")
