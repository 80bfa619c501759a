"""A response to generate, and its end."""

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import anyio

from engine import GenerationRequest
from gateway.apis.openai.conversations.store import Turn, TurnEnd
from gateway.apis.openai.responses.encoded import EncodedItem
from gateway.apis.openai.responses.response import ResponseAnswer
from gateway.apis.openai.responses.store.store import ResponseStore
from gateway.apis.openai.responses.stream import ResponseEvents
from gateway.middleware.caller import Caller
from gateway.middleware.errors import RefusedError
from gateway.middleware.streams.sse import EventSource, NextEvents
from gateway.serving.generations import Generations


@dataclass(frozen=True, slots=True)
class ResponseWork:
    """A response to generate."""

    answer: ResponseAnswer
    """The response under construction."""
    generations: Generations
    """Generations of the request's model."""
    caller: Caller
    """Sender of the request. Its `closing` has the reason for an early end, even after the client has its answer."""
    request: GenerationRequest
    """The request for the engine."""
    names: Mapping[str, str]
    """The client's names of fields, as in `Generations`."""
    inputs: list[EncodedItem]
    """Input items of the request, stored with the response. Empty if it is not stored."""
    store: ResponseStore | None
    """Keeps the response when it has ended; unset if it is not stored."""
    turn: Turn
    """Place of the response in a conversation. It is also cancelled with the end of what the caller holds."""

    @property
    def owner(self) -> str:
        """Owner of the response, as in `ResponseStore`."""
        return self.caller.credentials

    @property
    def size(self) -> int:
        """Number of bytes of the input items."""
        return sum(len(item.json) for item in self.inputs)

    async def end(self) -> None:
        """Store the ended response and end its turn, or do none of them. Is not interrupted.

        The turn adds the items to its conversation if another response may follow this one. The request's deadline does
        not count from here on, because the client must learn that the response is stored. Raises the errors of the
        stores.
        """
        self.caller.closing.lift_deadline()
        end = TurnEnd(self.turn, [*self.inputs, *self.answer.output]) if self.answer.can_continue else None
        with anyio.CancelScope(shield=True):
            if self.store is not None:
                await self.store.put(self.owner, self.answer.stored(self.inputs), end)
            elif end is not None:
                await self.turn.end(end.items)
            if end is None:
                await self.turn.cancel()

    async def end_failed(self, events: ResponseEvents) -> None:
        """End the response of a stream that failed. If it cannot be stored either, the client knows of a failure."""
        if not events.stored:
            with suppress(RefusedError):
                await self.end()

    def ending(self, source: EventSource, events: ResponseEvents) -> EventSource:
        """Return the source of a stream that ends the response before its last events are sent."""

        @asynccontextmanager
        async def opened() -> AsyncIterator[NextEvents]:
            try:
                async with source() as next_events:

                    async def take() -> Iterable[bytes]:
                        events.complete = events.stored
                        found = await next_events()
                        if self.answer.ended and not events.stored:
                            await self.end()
                            events.stored = True
                        return found

                    yield take
            finally:
                await self.turn.cancel()

        return opened
