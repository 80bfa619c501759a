"""Pending queries to the engine."""

import itertools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

import anyio
import anyio.lowlevel

from engine.client.exchange import Send
from engine.errors import RequestError, Unavailable
from engine.notifier import Notifier
from engine.protocol.messages import Answered, AnswerT, AnyQuery, Ask, CancelQuery, Inspect, Query, QueryFailed


@dataclass(slots=True)
class _Pending:
    """A query without its last reply."""

    replies: deque[Answered | QueryFailed] = field(default_factory=deque)
    """Replies of the engine that its task has not taken yet."""
    ended: bool = False
    """True once the last reply has arrived or the engine has ended."""
    changed: Notifier = field(default_factory=Notifier)
    """Wakes the task that waits for the replies."""

    async def next(self) -> Answered | QueryFailed:
        """Wait for the next reply and return it.

        Raises:
            Unavailable: The engine ended before.
        """
        await anyio.lowlevel.checkpoint()
        while not self.replies:
            if self.ended:
                raise _ended()
            await self.changed.wait()
        return self.replies.popleft()


def _drop(_part: object) -> None:
    pass


class Queries:
    """Connects tasks that send queries to the task that reads the engine's frames. A reply wakes only its own task."""

    def __init__(self, clock: Callable[[], float] = anyio.current_time) -> None:
        self.pinged_at: float | None = None
        """Time of the ping that the engine has not answered, by `clock`; unset if there is none."""
        self._clock = clock
        self._send: Send | None = None
        self._pending: dict[int, _Pending] = {}
        self._ids = itertools.count(1)

    def connect(self, send: Send) -> None:
        """Connect to an engine that is ready."""
        self._send = send

    async def ask(
        self,
        query: Query[AnswerT],
        client: str = "",
        take: Callable[[AnswerT], None] = _drop,
        sent: Callable[[], None] = lambda: None,
    ) -> AnswerT:
        """Send a query, wait for its answer and return the last part of it. Cancelling the wait cancels the query.

        Args:
            query: Query to send.
            client: Client that the query is for, as in `Ask`.
            take: Called with each earlier part as it arrives. Other tasks run between two calls.
            sent: Called when the query is sent.

        Raises:
            Unavailable: The engine is not ready, or it ended before it answered.
            RequestError: The query has no answer, or a frame cannot carry it.
        """
        if self._send is None:
            raise _ended()
        query_id = next(self._ids)
        try:
            self._send(Ask(query_id, cast("AnyQuery", query), client))
        except ValueError as error:
            raise RequestError(f"The request cannot be sent to the engine: {error}") from error
        pending = self._pending[query_id] = _Pending()
        try:
            sent()
            while isinstance(reply := await pending.next(), Answered):
                answer = cast("AnswerT", reply.answer)
                if not reply.more:
                    return answer
                take(answer)
            raise reply.fault.error()
        finally:
            self._forget(query_id)

    @property
    def waiting(self) -> bool:
        """True if a query waits for its reply."""
        return bool(self._pending)

    async def ping(self) -> None:
        """Ask the engine for a sign of life. Also one that computes for long answers at once, by another thread."""
        self.pinged_at = self._clock()
        await self.ask(Inspect())
        self.pinged_at = None

    def resolve(self, reply: Answered | QueryFailed) -> None:
        """Deliver a reply. A reply to a cancelled query is dropped."""
        if pending := self._pending.get(reply.query_id):
            pending.replies.append(reply)
            pending.ended = isinstance(reply, QueryFailed) or not reply.more
            pending.changed.notify()

    def disconnect(self) -> None:
        """Fail all pending queries, because the engine ended."""
        self._send = self.pinged_at = None
        lost, self._pending = self._pending, {}
        for pending in lost.values():
            pending.ended = True
            pending.changed.notify()

    def _forget(self, query_id: int) -> None:
        """Cancel a query, unless its last reply has arrived."""
        pending = self._pending.pop(query_id, None)
        if pending is not None and not pending.ended and self._send is not None:
            self._send(CancelQuery(query_id))


def _ended() -> Unavailable:
    return Unavailable("The engine ended.", code="engine_unavailable")
