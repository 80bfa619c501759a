"""The place of a response in a stored conversation."""

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager

import anyio
from typing_extensions import override

from gateway.apis.openai.conversations.store import ConversationStore, Turn
from gateway.apis.openai.responses.call import ResponseCall
from gateway.apis.openai.responses.encoded import EncodedItem
from gateway.apis.openai.responses.response import ResponseAnswer
from gateway.apis.openai.responses.store.store import ResponseStore
from gateway.middleware.caller import Caller
from gateway.middleware.sse import EventSource, NextEvents


class _NoTurn(Turn):
    """A response that changes no conversation."""

    @override
    async def end(self, items: Sequence[EncodedItem]) -> None:
        """Do nothing."""

    @override
    def cancel(self) -> None:
        """Do nothing."""


class Histories:
    """Finds the items before those of a request: of a previous response, or of a conversation."""

    def __init__(self, responses: ResponseStore, conversations: ConversationStore) -> None:
        self._responses = responses
        self._conversations = conversations

    async def begin(self, caller: Caller, asked: ResponseCall) -> tuple[Turn, Sequence[EncodedItem]]:
        """Return the turn of a new response and the items before it. Raises the errors of the stores.

        The turn is cancelled at the end of the request, unless it has ended before. A response that is not stored only
        reads its conversation.
        """
        if asked.conversation_id is None or not asked.store:
            return _NoTurn(), await self.read(caller, asked)
        turn, history = await self._conversations.begin(caller.credentials, asked.conversation_id)
        caller.held.callback(turn.cancel)
        return turn, history

    async def read(self, caller: Caller, asked: ResponseCall) -> Sequence[EncodedItem]:
        """Return the items before those of a request. Raises the errors of the stores."""
        if asked.conversation_id is not None:
            return await self._conversations.read(caller.credentials, asked.conversation_id)
        previous = asked.options.previous_id
        return [] if previous is None else self._responses.history(caller.credentials, previous)


async def end_turn(turn: Turn, answer: ResponseAnswer, inputs: Sequence[EncodedItem]) -> None:
    """End the turn of a response that has ended. Its items are added if another response may follow it."""
    if not answer.can_continue:
        turn.cancel()
        return
    with anyio.CancelScope(shield=True):
        await turn.end([*inputs, *answer.output])


def ending_turn(source: EventSource, turn: Turn, answer: ResponseAnswer, inputs: Sequence[EncodedItem]) -> EventSource:
    """Return the source of a streamed response that ends its turn before the last event is sent."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[NextEvents]:
        try:
            async with source() as next_events:

                async def take() -> Iterable[bytes]:
                    events = await next_events()
                    if answer.ended:
                        await end_turn(turn, answer, inputs)
                    return events

                yield take
        finally:
            turn.cancel()

    return opened
