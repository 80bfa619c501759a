"""API of the engine for the gateway. Leaving the context of a request cancels it."""

import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import anyio

from engine.client.mailbox import Mailbox
from engine.client.process import command_for
from engine.client.status import EngineState, EngineStatus
from engine.client.supervisor import Supervisor
from engine.client.timeouts import Supervision
from engine.config import EngineConfig
from engine.errors import EngineFault, LoadError, Unavailable
from engine.events import EmbeddingResult, EngineMetrics, Finished, ModelInfo, SlotInfo, Text, TokenDetail
from engine.protocol.messages import Detokenize, Inspect, Tokenize
from engine.request import EmbeddingRequest, GenerationRequest, Request, TextPrompt

logger = logging.getLogger("engine.client")


@asynccontextmanager
async def open_engine(
    config: EngineConfig, *, command: Sequence[str] | None = None, limits: Supervision | None = None
) -> AsyncIterator["Engine"]:
    """Start an engine and keep it alive inside the context. Does not wait for the model: see `Engine.ready`.

    Leaving the context ends the process within twice `limits.drain_timeout`, even when cancelled. An exception from
    the context is raised unchanged, not in an exception group.

    Args:
        config: Configuration that the engine process receives at its start.
        command: Command of the process; None runs `engine.worker.main`.
        limits: Timeouts of the supervision; None takes the defaults.
    """
    supervisor = Supervisor(config, command or command_for("engine.worker.main"), limits or Supervision())
    failure: BaseException | None = None
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(supervisor.run)
            try:
                yield Engine(supervisor)
            finally:
                supervisor.stop()
    except BaseExceptionGroup as failures:
        if len(failures.exceptions) > 1:
            raise
        failure = failures.exceptions[0]
    if failure is not None:
        raise failure


class Generation:
    """An accepted request. For one task at a time."""

    def __init__(self, mailbox: Mailbox, prompt_tokens: tuple[int, ...]) -> None:
        self.prompt_tokens = prompt_tokens
        """Number of tokens of each prompt."""
        self._mailbox = mailbox

    async def started(self) -> None:
        """Wait until the request has left the queue. Returns at once if it ended successfully.

        Raises:
            EngineError: The request failed.
        """
        await self._mailbox.started()

    async def take(self) -> list[Text | Finished]:
        """Wait for events and return all pending ones, in order; [] after the last event of every choice.

        An error is raised only after all earlier events were returned.

        Raises:
            EngineFault: The engine failed the request or died.
            SlowReader: An event was pending for longer than the caller's patience.
            EngineError: A replay of the request was refused.
        """
        return await self._mailbox.take()

    async def outcomes(self) -> tuple[Finished, ...]:
        """Wait for the end of every choice and return the ends in order. For requests that do not stream.

        Raises:
            EngineError: As in `take`.
        """
        return await self._mailbox.outcomes()


class Engine:
    """One model in its own process."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    @property
    def status(self) -> EngineStatus:
        """Latest status of the engine."""
        return self._supervisor.board.latest

    @property
    def model(self) -> ModelInfo | None:
        """Description of the model; None until it was loaded for the first time."""
        return self._supervisor.model

    @property
    def metrics(self) -> EngineMetrics | None:
        """Latest metrics of the engine process; None until it has sent some."""
        return self._supervisor.metrics

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
                raise self._unavailable()
            await self.status_changed()
        return self.model

    async def inspect(self) -> tuple[tuple[SlotInfo, ...], EngineMetrics]:
        """Return every slot, and the metrics of the same moment. Waits for the answer, but not for a running step.

        Raises:
            Unavailable: The engine does not serve requests, or does not answer within `answer_timeout`.
        """
        self._check_ready()
        with anyio.move_on_after(self._supervisor.limits.answer_timeout):
            answer = await self._supervisor.queries.ask(Inspect())
            return answer.slots, answer.metrics
        raise Unavailable("The engine does not answer.", code="engine_unavailable")

    @asynccontextmanager
    async def generate(
        self,
        request: GenerationRequest,
        *,
        why: Callable[[], str] = lambda: "the caller left",
        patience: float | None = None,
    ) -> AsyncIterator[Generation]:
        """Send a request. Entering the context waits until the request is accepted.

        Leaving the context before every choice has ended cancels the request and waits, shielded from cancellation,
        until the engine has released everything that it held, for at most `answer_timeout`. A cancel is logged once.

        Args:
            request: Request to send.
            why: Called when the context is left early; returns the reason of the cancel for the log.
            patience: Seconds that an event of a streamed request may be pending before the request is cancelled.

        Raises:
            RequestError: The request can never be served.
            Busy: The queue is full.
            Unavailable: The engine does not serve requests.
            EngineFault: The engine failed.
        """
        async with self._open(request, why, patience if request.stream else None) as mailbox:
            yield Generation(mailbox, await mailbox.accepted())

    async def embed(
        self, request: EmbeddingRequest, *, why: Callable[[], str] = lambda: "the caller left"
    ) -> EmbeddingResult:
        """Return a vector for each text. Waits for all of them.

        Cancelling the call before the last vector has arrived cancels the request, and waits for its release as
        `generate` does.

        Args:
            request: Request to send.
            why: As in `generate`.

        Raises:
            EngineError: As in `generate`.
        """
        async with self._open(request, why, None) as mailbox:
            tokens = await mailbox.accepted()
            return EmbeddingResult(await mailbox.vectors(), tokens)

    async def tokenize(
        self, texts: Sequence[TextPrompt], *, special: bool, begin: bool
    ) -> tuple[tuple[TokenDetail, ...], ...]:
        """Return the tokens of each text, by id and piece. Waits for the answer; cancelling the wait cancels the query.

        Args:
            texts: Texts to tokenise.
            special: True to parse the names of control tokens as these tokens. A `PromptText` has its own parts.
            begin: True to add the model's beginning-of-sequence tokens to each text.

        Raises:
            Unavailable: The engine does not serve requests.
            RequestError: A frame cannot carry a text.
        """
        self._check_ready()
        answer = await self._supervisor.queries.ask(Tokenize(tuple(texts), special, begin))
        return answer.texts

    async def detokenize(self, tokens: Sequence[int], *, special: bool) -> bytes:
        """Return the bytes of tokens, which may start or end within a character. Waits as `tokenize` does.

        Args:
            tokens: Token ids of the model's vocabulary.
            special: True to render control tokens by their names.

        Raises:
            Unavailable: The engine does not serve requests.
            RequestError: An id is not in the vocabulary.
        """
        self._check_ready()
        answer = await self._supervisor.queries.ask(Detokenize(tuple(tokens), special))
        return answer.text

    @asynccontextmanager
    async def _open(self, request: Request, why: Callable[[], str], patience: float | None) -> AsyncIterator[Mailbox]:
        """Send a request and yield its mailbox. Leaving the context cancels a request that has not ended."""
        self._check_ready()
        mailbox = self._supervisor.exchange.open(request, patience)
        try:
            yield mailbox
        finally:
            await self._close(mailbox, why)

    async def _close(self, mailbox: Mailbox, why: Callable[[], str]) -> None:
        if not (mailbox.ended or mailbox.cancelled):
            self._supervisor.exchange.cancel(mailbox, why())
        if mailbox.cancelled:
            with anyio.move_on_after(self._supervisor.limits.answer_timeout, shield=True):
                await mailbox.wait_ended()
            _log_cancel(mailbox)
        elif isinstance(mailbox.error, EngineFault | Unavailable):
            fields = {"request_id": mailbox.request.id, "why": mailbox.error.message}
            logger.error("request failed", extra=fields)

    def _check_ready(self) -> None:
        if self.status.state is not EngineState.READY:
            raise self._unavailable()

    def _unavailable(self) -> Unavailable:
        return Unavailable(self.status.detail, code="engine_unavailable")


def _log_cancel(mailbox: Mailbox) -> None:
    fields: dict[str, object] = {"request_id": mailbox.request.id, "reason": mailbox.reason}
    if not mailbox.ended:
        logger.warning("request cancelled, but not released in time", extra=fields)
        return
    fields["phase"] = "dead"
    if mailbox.released is not None:
        fields |= {
            "phase": mailbox.released.phase,
            "tokens": mailbox.released.tokens,
            "freed": mailbox.released.freed,
        }
    fields["ms"] = round(mailbox.release_seconds * 1000, 1)
    logger.info("request cancelled", extra=fields)
