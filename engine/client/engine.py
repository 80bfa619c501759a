"""API of the engine for the gateway. Leaving the context of a request cancels it."""

import math
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import NoReturn

import anyio

from engine.client.generation import Generation
from engine.client.measurements.telemetry import Telemetry
from engine.client.queue_positions import QueuePositions
from engine.client.request_scope import OnEnd, open_request, wait_accepted
from engine.client.status import RESTARTING, EngineState, EngineStatus
from engine.client.supervisor import Supervisor
from engine.errors import LoadError, Unavailable
from engine.events import EmbeddingResult, TokenRun
from engine.info import EngineMetrics, HeldPrefix, ModelInfo, QueuedRequest, SlotInfo
from engine.prompt import TextPrompt
from engine.protocol.messages import (
    AnswerT,
    Detokenize,
    Inspect,
    InspectPrefixes,
    InspectQueue,
    KeepSlot,
    Query,
    Tokenize,
)
from engine.request import AdapterSet, EmbeddingRequest, GenerationRequest, Request, SlotAction


class Engine:
    """One model in its own process."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._positions = QueuePositions(partial(supervisor.queries.ask, InspectQueue()))

    @property
    def status(self) -> EngineStatus:
        """Latest status of the engine."""
        return self._supervisor.board.latest

    @property
    def model(self) -> ModelInfo | None:
        """Description of the model; unset until it was loaded for the first time."""
        return self._supervisor.model

    @property
    def file(self) -> str | None:
        """Path of the model's file; unset while it is being downloaded."""
        return self._supervisor.file

    @property
    def metrics(self) -> EngineMetrics | None:
        """Latest metrics of the engine process; unset until it has sent some."""
        return self._supervisor.metrics

    @property
    def telemetry(self) -> Telemetry:
        """Latest measurements. Never waits."""
        totals, exchange = self._supervisor.totals, self._supervisor.exchange
        return Telemetry(totals.metrics(), exchange.gaps, totals.step_tokens, exchange.waiting, self.status.restarts)

    async def status_changed(self, known: EngineStatus | None = None) -> EngineStatus:
        """Wait until the status differs from `known` (None: from the current one) and return it."""
        return await self._supervisor.board.changed(known or self.status)

    async def ready(self) -> ModelInfo:
        """Wait until the engine serves requests and return its model.

        Raises:
            LoadError: The model cannot be loaded.
            Unavailable: The engine was stopped.
        """
        while self.status.state is not EngineState.READY or self.model is None:
            if self.status.state is EngineState.FAILED:
                raise LoadError(self.status.detail, code="load_failed")
            if self.status.state is EngineState.STOPPED:
                raise self._supervisor.unavailable()
            await self.status_changed()
        return self.model

    async def lost(self) -> NoReturn:
        """Wait until a process that replaces another one cannot load the model, which was loaded before.

        The engine tries again as long as it is open.

        Raises:
            LoadError: The model cannot be loaded any more.
        """
        while not (status := self.status).cause:
            await self.status_changed(status)
        raise LoadError(status.detail, code="load_failed")

    async def inspect(self) -> tuple[tuple[SlotInfo, ...], EngineMetrics]:
        """Return every slot, and the metrics of the same moment. Waits for the answer, but not for a running step.

        Raises:
            Unavailable: The engine does not serve requests, or does not answer within `answer_timeout`.
        """
        answer = await self._ask(Inspect())
        return answer.slots, answer.metrics

    async def queue(self) -> tuple[QueuedRequest, ...]:
        """Return the generation requests that wait for a slot, in the order that `QueuePositions` estimates.

        Raises:
            Unavailable: The engine does not serve requests.
        """
        self._check_ready()
        return self._supervisor.exchange.queued(await self._positions.latest())

    async def held_prefixes(self, most: int) -> tuple[HeldPrefix, ...]:
        """Return the prefixes of labelled requests whose cells can be reused, at most so many, the last used first.

        Raises:
            Unavailable: The engine does not serve requests, or does not answer within `answer_timeout`.
        """
        return (await self._ask(InspectPrefixes(most))).prefixes

    @asynccontextmanager
    async def generate(
        self,
        request: GenerationRequest,
        *,
        why: Callable[[], str] = lambda: "the caller left",
        patience: float | None = None,
        deadline: float = math.inf,
        on_end: OnEnd | None = None,
    ) -> AsyncIterator[Generation]:
        """Send a request. Entering the context waits until the request is accepted.

        While the engine restarts, the request waits for it.

        Leaving the context before every choice has ended cancels the request and waits, shielded from cancellation,
        until the engine has released everything that it held, for at most `answer_timeout`. A cancel is logged once.

        Args:
            request: Request to send.
            why: Called when the context is left early; returns the reason of the cancel for the log.
            patience: Seconds that an event of a streamed request may be pending before the request is cancelled.
            deadline: Time by the event loop's clock at which the wait for the acceptance ends.
            on_end: Called once before the context is left, with any end of a request that was sent.

        Raises:
            RequestError: The request can never be served.
            Busy: The queue is full, or the deadline has passed.
            Unavailable: The engine does not serve requests.
            EngineFault: The engine failed.
        """
        patience = patience if request.stream else None
        async with open_request(self._supervisor, request, why, patience, on_end) as mailbox:
            tokens = await wait_accepted(self._supervisor, mailbox, deadline)
            yield Generation(mailbox, tokens, self._positions, self._supervisor.exchange.end_reasoning)

    async def embed(
        self,
        request: EmbeddingRequest,
        *,
        why: Callable[[], str] = lambda: "the caller left",
        accepted: Callable[[], None] = lambda: None,
        on_end: OnEnd | None = None,
    ) -> EmbeddingResult:
        """Return a vector for each text. Waits for all of them.

        Cancelling the call before the last vector has arrived cancels the request, and waits for its release as
        `generate` does.

        Args:
            request: Request to send.
            why: As in `generate`.
            accepted: Called when the engine has accepted the request.
            on_end: As in `generate`.

        Raises:
            EngineError: As in `generate`.
        """
        async with open_request(self._supervisor, request, why, None, on_end) as mailbox:
            tokens = await mailbox.accepted()
            accepted()
            return EmbeddingResult(await mailbox.vectors(), tokens)

    async def tokenize(
        self,
        texts: Sequence[TextPrompt],
        *,
        special: bool,
        begin: bool,
        take: Callable[[TokenRun], None],
        pieces: bool = False,
        client: str = "",
        sent: Callable[[], None] = lambda: None,
    ) -> None:
        """Tokenise texts. Waits for the whole answer; cancelling the wait cancels the query.

        Args:
            texts: Texts to tokenise.
            special: True to parse the names of control tokens as these tokens. A `PromptText` has its own parts.
            begin: True to add the model's beginning-of-sequence tokens to each text.
            take: Called with some thousand tokens at a time, in order. Other tasks run between two calls.
            pieces: True to return the bytes of each token besides its id.
            client: Client that the query is for. Clients take turns.
            sent: Called when the query is sent to the engine.

        Raises:
            Unavailable: The engine does not serve requests.
            Busy: Too many queries of the client wait.
            RequestError: A frame cannot carry a text, or the texts are too long.
        """
        await self._restarted()
        query = Tokenize(tuple(texts), special, begin, pieces)
        last = await self._supervisor.queries.ask(query, client, lambda part: take(part.tokens), sent)
        take(last.tokens)

    async def detokenize(
        self, tokens: Sequence[int], *, special: bool, client: str = "", sent: Callable[[], None] = lambda: None
    ) -> bytes:
        """Return the bytes of tokens, which may start or end within a character. Waits as `tokenize` does.

        Args:
            tokens: Token ids of the model's vocabulary.
            special: True to render control tokens by their names.
            client: Client that the query is for. Clients take turns.
            sent: Called when the query is sent to the engine.

        Raises:
            Unavailable: The engine does not serve requests.
            Busy: Too many queries of the client wait.
            RequestError: An id is not in the vocabulary.
        """
        await self._restarted()
        answer = await self._supervisor.queries.ask(Detokenize(tuple(tokens), special), client, sent=sent)
        return answer.text

    async def keep_slot(
        self, action: SlotAction, slot: int, *, file: str = "", partition: str = "", adapters: AdapterSet = ()
    ) -> tuple[int, int]:
        """Save, restore or erase the cells of a slot, once no sequence holds it. Cancelling the wait cancels the query.

        Returns the number of tokens and the size of the file.

        Raises:
            Unavailable: The engine does not serve requests.
            RequestError: It cannot be done.
        """
        await self._restarted()
        kept = await self._supervisor.queries.ask(KeepSlot(action, slot, file, partition, adapters))
        return kept.tokens, kept.bytes

    def set_log_level(self, level: str) -> None:
        """Set the log level of the engine process, by Python's names in upper or lower case."""
        self._supervisor.set_log_level(level)

    def queue_seconds(self, request: Request) -> float | None:
        """Return the estimated time until a request like this one would be served, or None if it is unknown."""
        return self._supervisor.exchange.queue_seconds(request, self.metrics)

    @property
    def seconds_to_ready(self) -> float | None:
        """Estimated time until the model is loaded, or None if it is unknown or the engine is ready."""
        return self._supervisor.seconds_to_ready()

    async def _ask(self, query: Query[AnswerT]) -> AnswerT:
        """Return the answer to a query that needs no step.

        Raises:
            Unavailable: The engine does not serve requests, or does not answer within `answer_timeout`.
        """
        self._check_ready()
        with anyio.move_on_after(self._supervisor.limits.answer_timeout):
            return await self._supervisor.queries.ask(query)
        raise Unavailable("The engine does not answer.", code="engine_unavailable")

    async def _restarted(self) -> None:
        """Wait while the engine restarts.

        Raises:
            Unavailable: The engine does not serve requests.
        """
        while self.status.state in RESTARTING:
            await self.status_changed()
        self._check_ready()

    def _check_ready(self) -> None:
        if self.status.state is not EngineState.READY:
            raise self._supervisor.unavailable()
