"""Pending queries to the engine."""

import itertools
from dataclasses import dataclass, field
from typing import cast

import anyio

from engine.client.exchange import Send
from engine.client.refusals import error_from
from engine.errors import RequestError, Unavailable
from engine.protocol.messages import Answered, AnswerT, AnyQuery, Ask, CancelQuery, Query, QueryFailed


@dataclass(slots=True)
class _Pending:
    """A query without a reply."""

    reply: Answered | QueryFailed | None = None
    """Reply of the engine; None until it arrives."""
    resolved: anyio.Event = field(default_factory=anyio.Event)
    """Set when the reply has arrived or the engine has ended."""


class Queries:
    """Connects tasks that send queries to the task that reads the engine's frames. A reply wakes only its own task."""

    def __init__(self) -> None:
        self._send: Send | None = None
        self._pending: dict[int, _Pending] = {}
        self._ids = itertools.count(1)

    def connect(self, send: Send) -> None:
        """Connect to an engine that is ready."""
        self._send = send

    async def ask(self, query: Query[AnswerT]) -> AnswerT:
        """Send a query, wait for its answer and return it. Cancelling the wait cancels the query.

        Raises:
            Unavailable: The engine is not ready, or it ended before it answered.
            RequestError: The query has no answer, or a frame cannot carry it.
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
            await pending.resolved.wait()
        finally:
            self._forget(query_id)
        if pending.reply is None:
            raise _ended()
        if isinstance(pending.reply, QueryFailed):
            raise error_from(pending.reply)
        return cast("AnswerT", pending.reply.answer)

    def resolve(self, reply: Answered | QueryFailed) -> None:
        """Deliver a reply. A reply to a cancelled query is dropped."""
        if pending := self._pending.get(reply.query_id):
            pending.reply = reply
            pending.resolved.set()

    def disconnect(self) -> None:
        """Fail all pending queries, because the engine ended."""
        self._send = None
        lost, self._pending = self._pending, {}
        for pending in lost.values():
            pending.resolved.set()

    def _forget(self, query_id: int) -> None:
        pending = self._pending.pop(query_id, None)
        if pending is not None and pending.reply is None and self._send is not None:
            self._send(CancelQuery(query_id))


def _ended() -> Unavailable:
    return Unavailable("The engine ended.", code="engine_unavailable")
