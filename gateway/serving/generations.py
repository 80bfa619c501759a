"""Generation requests on one engine: admission, deadlines, cancellation."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import anyio

from engine import Busy, Engine, Finished, Generation, GenerationRequest, RequestError, Text
from gateway.middleware.caller import Caller, Closing
from gateway.middleware.sse import EventSource, NextEvents


@dataclass(frozen=True, slots=True)
class GenerationResult:
    """What came of a request that does not stream.

    Attributes:
        prompt_tokens: tokens of each prompt.
        outcomes: every choice's end, in order of choice.
    """

    prompt_tokens: tuple[int, ...]
    outcomes: tuple[Finished, ...]


Encode = Callable[[tuple[int, ...], Sequence[Text | Finished]], bytes]
"""Events of a stream as they are sent. Takes the tokens of each prompt, too."""


class Generations:
    """Runs the requests of one engine within the server's limits. A request that is left is cancelled.

    Where the engine refuses a field that the client knows by another name, `names` has that name.
    """

    def __init__(self, engine: Engine, *, queue_timeout: float, patience: float) -> None:
        """Run requests on `engine`.

        Args:
            engine: runs them.
            queue_timeout: how long a request may wait for a slot, in seconds.
            patience: with a client that does not read, in seconds.
        """
        self._engine = engine
        self._queue_timeout = queue_timeout
        self._patience = patience

    async def run(
        self, caller: Caller, request: GenerationRequest, names: Mapping[str, str] | None = None
    ) -> GenerationResult:
        """Wait for all of the answer. Raises `EngineError`, such as `Busy` after too long a wait for a slot."""
        async with self.open(caller, request, names) as admission:
            generation = await admission.granted()
            return GenerationResult(generation.prompt_tokens, await generation.outcomes())

    def stream(
        self, caller: Caller, request: GenerationRequest, encode: Encode, names: Mapping[str, str] | None = None
    ) -> EventSource:
        """Return the answer as it comes. Opening it and taking from it raise as `run` does."""

        @asynccontextmanager
        async def source() -> AsyncIterator[NextEvents]:
            async with self.open(caller, request, names) as admission:

                async def take() -> Sequence[bytes]:
                    generation = await admission.granted()
                    events = await generation.take()
                    return [encode(generation.prompt_tokens, events)] if events else []

                yield take

        return source

    @asynccontextmanager
    async def open(
        self, caller: Caller, request: GenerationRequest, names: Mapping[str, str] | None = None
    ) -> AsyncIterator["Admission"]:
        """Send a request to the engine; entering waits until it is accepted. Leaving early cancels it.

        The request shares cached prompts within the caller's partition only. Raises as `run` does.
        """
        deadline = anyio.current_time() + self._queue_timeout
        request = _partitioned(request, caller)
        try:
            async with self._engine.generate(request, why=caller.why, patience=self._patience) as generation:
                yield Admission(generation, caller.closing, deadline)
        except RequestError as error:
            param = (names or {}).get(error.param or "", error.param)
            raise RequestError(error.message, code=error.code, param=param) from error


def _partitioned(request: GenerationRequest, caller: Caller) -> GenerationRequest:
    """Return the request in its caller's partition: response times then say nothing about other callers' prompts."""
    if not caller.cache_partition:
        return request
    return replace(request, cache_partition=f"{caller.cache_partition} {request.cache_partition}")


@dataclass(slots=True)
class Admission:
    """A request's way out of the queue."""

    generation: Generation
    closing: Closing
    deadline: float
    waits: bool = True

    async def granted(self) -> Generation:
        """Wait until the request has left the queue. Raises `Busy` at the deadline. Can be cancelled and repeated."""
        if self.waits:
            with anyio.CancelScope(deadline=self.deadline) as patience:
                await self.generation.started()
            if patience.cancelled_caught:
                message = "The request waited in the queue for longer than this server allows."
                self.closing.reason = self.closing.reason or "waited in the queue for too long"
                raise Busy(message, code="queue_timeout")
            self.waits = False
        return self.generation
