"""How every route that generates runs its request on the engine."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from hashlib import blake2b

import anyio
from starlette.requests import Request

from engine import Busy, Engine, Finished, Generation, GenerationRequest, RequestError, Text
from gateway.middleware.closing import Closing, closing_of
from gateway.middleware.sse import Source, Take


@dataclass(frozen=True, slots=True)
class Answer:
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
    """Runs requests within the server's limits. A request that is left is cancelled, for the reason its scope has.

    Each goes through `partitioned` first. Where the engine refuses a field that the client knows by another name,
    `names` say by which.
    """

    def __init__(self, engine: Engine, *, queue_timeout: float, patience: float, partition: bool) -> None:
        """Make it.

        Args:
            engine: runs them.
            queue_timeout: in seconds.
            patience: with a client that does not read, in seconds.
            partition: whether only those who send the same credentials share cached prompts.
        """
        self._engine = engine
        self._queue_timeout = queue_timeout
        self._patience = patience
        self._partition = partition

    def partitioned(self, http: Request, request: GenerationRequest) -> GenerationRequest:
        """The request with what it may share, so that nobody learns from the time an answer takes what others asked.

        The engine's process is told a digest and not the credentials.
        """
        if not self._partition:
            return request
        credentials = "\n".join(http.headers.getlist("authorization"))
        digest = blake2b(credentials.encode("latin-1"), digest_size=16).hexdigest()
        return replace(request, cache_partition=f"{digest} {request.cache_partition}")

    async def run(self, http: Request, request: GenerationRequest, names: Mapping[str, str] | None = None) -> Answer:
        """Wait for all of the answer. Raises `EngineError`, such as `Busy` after too long a wait for a slot."""
        async with self.open(closing_of(http.scope), request, names) as admission:
            generation = await admission.granted()
            return Answer(generation.prompt_tokens, await generation.outcomes())

    def stream(
        self, http: Request, request: GenerationRequest, encode: Encode, names: Mapping[str, str] | None = None
    ) -> Source:
        """The answer as it comes. Opening it and taking from it raise as `run` does."""

        @asynccontextmanager
        async def source() -> AsyncIterator[Take]:
            async with self.open(closing_of(http.scope), request, names) as admission:

                async def take() -> Sequence[bytes]:
                    generation = await admission.granted()
                    events = await generation.take()
                    return [encode(generation.prompt_tokens, events)] if events else []

                yield take

        return source

    @asynccontextmanager
    async def open(
        self, closing: Closing, request: GenerationRequest, names: Mapping[str, str] | None = None
    ) -> AsyncIterator["Admission"]:
        """Send a request to the engine; entering waits until it is accepted. Leaving early cancels it.

        For what is not answered in the request's own scope, `closing` says why it is left. Raises as `run` does.
        """
        deadline = anyio.current_time() + self._queue_timeout

        def why() -> str:
            return closing.reason or "the request failed"

        try:
            async with self._engine.generate(request, why=why, patience=self._patience) as generation:
                yield Admission(generation, closing, deadline)
        except RequestError as error:
            param = (names or {}).get(error.param or "", error.param)
            raise RequestError(error.message, code=error.code, param=param) from error


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
