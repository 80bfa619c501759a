"""The gateway's engine: requests in, what comes of them out. Leaving a request is how it is cancelled."""

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
from engine.request import EmbeddingRequest, GenerationRequest, Request

logger = logging.getLogger("engine.client")


@asynccontextmanager
async def open_engine(
    config: EngineConfig, *, command: Sequence[str] | None = None, limits: Supervision | None = None
) -> AsyncIterator["Engine"]:
    """Start an engine and keep it alive inside the context. Does not wait for the model: see `Engine.ready`.

    Leaving ends the process, within twice `limits.drain_timeout`, even when cancelled. What is raised inside comes
    out as it is, not in a group.

    Args:
        config: what the engine is told at its start.
        command: the process to run; None runs `engine.worker.main`.
        limits: how long the process may take; None takes the defaults.
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
    """A request that the engine accepted. For one task at a time.

    Attributes:
        prompt_tokens: tokens of each prompt.
    """

    def __init__(self, mailbox: Mailbox, prompt_tokens: tuple[int, ...]) -> None:
        self.prompt_tokens = prompt_tokens
        self._mailbox = mailbox

    async def started(self) -> None:
        """Wait until the request left the queue. Returns at once if it has ended well.

        Raises `EngineError` if the request failed.
        """
        await self._mailbox.started()

    async def take(self) -> list[Text | Finished]:
        """Wait for news; gives all there is, in order, and [] once every choice has ended and was taken.

        Raises, after what came before: `EngineFault` if the engine failed the request or died, `SlowReader` if news
        lay here for longer than the caller's patience, another `EngineError` if a replay was refused.
        """
        return await self._mailbox.take()

    async def outcomes(self) -> tuple[Finished, ...]:
        """Wait for the end of every choice; gives them in order. For requests that do not stream.

        Raises as `take` does.
        """
        return await self._mailbox.outcomes()


class Engine:
    """One model in a process of its own."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    @property
    def status(self) -> EngineStatus:
        """How the engine is."""
        return self._supervisor.board.latest

    @property
    def model(self) -> ModelInfo | None:
        """The model; None until it was loaded for the first time."""
        return self._supervisor.model

    @property
    def metrics(self) -> EngineMetrics | None:
        """The engine's latest metrics; None until a process has told any."""
        return self._supervisor.metrics

    async def status_changed(self, known: EngineStatus | None = None) -> EngineStatus:
        """Wait until the status is not `known`, or not what it is now; gives the new one."""
        return await self._supervisor.board.changed(known or self.status)

    async def ready(self) -> ModelInfo:
        """Wait until the engine serves. Raises `LoadError` if it cannot, `Unavailable` if it was stopped."""
        while self.status.state is not EngineState.READY or self.model is None:
            if self.status.state is EngineState.FAILED:
                raise LoadError(self.status.detail, code="load_failed")
            if self.status.state is EngineState.STOPPED:
                raise self._unavailable()
            await self.status_changed()
        return self.model

    async def inspect(self) -> tuple[tuple[SlotInfo, ...], EngineMetrics]:
        """Every slot, and the metrics of the same moment. Waits for the answer, which no decode delays.

        Raises `Unavailable` if the engine does not serve, or does not answer within `answer_timeout`.
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
        """Send a request; entering waits until it is accepted.

        Leaving before every choice has ended cancels the request, and waits, whatever else is cancelled, until the
        engine has released all that it held, for `answer_timeout` at most. One line of the log tells of it.

        Args:
            request: what to generate.
            why: asked on leaving early: who cancels and why.
            patience: how long news may lie untaken, in seconds, if the request streams; then it is cancelled.

        Raises, on entering: `RequestError` for one that can never be served, `Busy` when the queue is full,
        `Unavailable` when the engine does not serve, `EngineFault` when it failed.
        """
        async with self._open(request, why, patience if request.stream else None) as mailbox:
            yield Generation(mailbox, await mailbox.accepted())

    async def embed(
        self, request: EmbeddingRequest, *, why: Callable[[], str] = lambda: "the caller left"
    ) -> EmbeddingResult:
        """Turn texts into vectors; waits for all of them.

        Being cancelled before the last one is there cancels the request, and waits as leaving `generate` does. `why`
        is asked then. Raises as `generate` does.
        """
        async with self._open(request, why, None) as mailbox:
            tokens = await mailbox.accepted()
            return EmbeddingResult(await mailbox.vectors(), tokens)

    async def tokenize(
        self, texts: Sequence[str], *, special: bool, begin: bool
    ) -> tuple[tuple[TokenDetail, ...], ...]:
        """The tokens of each text, by id and piece. Waits for the answer; cancelling the wait cancels the query.

        Args:
            texts: what to tokenise.
            special: whether the names of control tokens stand for these tokens.
            begin: whether the model's own beginning is put before each text.

        Raises `Unavailable` if the engine does not serve, `RequestError` for a text that no frame can carry.
        """
        self._check_ready()
        answer = await self._supervisor.queries.ask(Tokenize(tuple(texts), special, begin))
        return answer.texts

    async def detokenize(self, tokens: Sequence[int], *, special: bool) -> bytes:
        """The bytes that tokens stand for, perhaps not whole characters. Waits as `tokenize` does.

        Args:
            tokens: ids of the model's vocabulary.
            special: whether control tokens appear by their names.

        Raises `Unavailable` if the engine does not serve, `RequestError` for an id that the model does not have.
        """
        self._check_ready()
        answer = await self._supervisor.queries.ask(Detokenize(tuple(tokens), special))
        return answer.text

    @asynccontextmanager
    async def _open(self, request: Request, why: Callable[[], str], patience: float | None) -> AsyncIterator[Mailbox]:
        """A request's mailbox; leaving it cancels what has not ended."""
        self._check_ready()
        mailbox = self._supervisor.exchange.open(request, patience)
        try:
            yield mailbox
        finally:
            await self._leave(mailbox, why)

    async def _leave(self, mailbox: Mailbox, why: Callable[[], str]) -> None:
        if not (mailbox.ended or mailbox.cancelled):
            self._supervisor.exchange.cancel(mailbox, why())
        if mailbox.cancelled:
            with anyio.move_on_after(self._supervisor.limits.answer_timeout, shield=True):
                await mailbox.end()
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
