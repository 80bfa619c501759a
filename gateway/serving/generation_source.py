"""Source of a streamed response: the encoded events of one generation request."""

import math
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import anyio

from engine import Finished, Text
from gateway.middleware.streams.direct import Sink
from gateway.serving.admission import Admission

Encode = Callable[[tuple[int, ...], Sequence[Text | Finished]], Iterable[bytes]]
"""Encodes events of a stream. Takes the number of tokens of each prompt and the events; returns the pieces to send."""

_FEW_ALTERNATIVES = 20
"""Alternatives of the only token of an event that is sent at once. Other streams wait while more are encoded."""


class GenerationSource:
    """Source of the encoded events of one answer, as `EventSource`. For one use."""

    def __init__(
        self, submit: Callable[[], AbstractAsyncContextManager[Admission]], encode: Encode, interval: float = 0.0
    ) -> None:
        """Create a source.

        Args:
            submit: Sends the request to the engine.
            encode: Encodes the events.
            interval: Minimum time between two takes, in seconds. Events that arrive meanwhile are taken together.
        """
        self._submit = submit
        self._encode = encode
        self._interval = interval
        self._admission: Admission | None = None

    @asynccontextmanager
    async def __call__(self) -> AsyncIterator["GenerationEvents"]:
        """Send the request, and return the function that takes its events."""
        async with self._submit() as admission:
            self._admission = admission
            yield GenerationEvents(admission, self._encode, self._interval)

    def end_reasoning(self) -> bool:
        """End the reasoning where it has begun. Never waits. Returns False if the answer is not being generated."""
        return self._admission is not None and self._admission.generation.end_reasoning()

    async def status(self) -> str:
        """Return the position of a request that waits in the queue, or an empty text."""
        if self._admission is None or not self._admission.waits:
            return ""
        position = await self._admission.generation.position()
        return "" if position is None else f"queued, position {position}"


class GenerationEvents:
    """Encoded events of one answer, as `DirectEvents`."""

    def __init__(self, admission: Admission, encode: Encode, interval: float) -> None:
        """Create the events. The arguments are those of `GenerationSource`."""
        self._admission = admission
        self._generation = admission.generation
        self._encode = encode
        self._interval = interval
        self._rests_until = -math.inf
        self._sink: Sink | None = None
        self._failure: Exception | None = None

    async def __call__(self) -> Iterable[bytes]:
        """Wait for events and return them encoded; an empty sequence at the end.

        Raises:
            EngineError: The engine failed the request; `Busy` if it waited too long for a slot.
        """
        if self._admission.waits:
            await self._admission.granted()
        if self._interval:
            await anyio.sleep_until(self._rests_until)
        events = await self._generation.take()
        if self._failure is not None:
            raise self._failure
        if self._interval:
            self._rests_until = anyio.current_time() + self._interval
        return self._encode(self._generation.prompt_tokens, events) if events else ()

    def pass_on(self, sink: Sink) -> None:
        """Send events through a sink while a task waits for them. With an interval, events wait for each other."""
        if not self._interval:
            self._sink = sink
            self._generation.pass_on(self._send)

    def _send(self, event: Text) -> bool:
        """Send an event at once. Returns False if it must wait for the task, which raises an error of the encoder."""
        try:
            if self._sink is None or not _is_short(event) or not self._sink.ready:
                return False
            self._sink.send(self._encode(self._generation.prompt_tokens, (event,)))
        except Exception as error:  # noqa: BLE001 - raised by the next take
            self._failure = error
            return False
        return True


def _is_short(event: Text) -> bool:
    return not event.details or (len(event.details) == 1 and len(event.details[0].top) <= _FEW_ALTERNATIVES)
