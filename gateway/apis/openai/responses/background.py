"""Responses that run while nobody waits for them."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
from anyio.abc import TaskGroup, TaskStatus

from engine import GenerationRequest, Unavailable
from gateway.apis.openai.responses.items import Item
from gateway.apis.openai.responses.response import ResponseAnswer
from gateway.apis.openai.responses.store import ResponseStore
from gateway.middleware import errors
from gateway.middleware.caller import Caller
from gateway.middleware.errors import DEADLINE_PASSED, RefusedError
from gateway.serving.generations import Admission, Generations

SHUTDOWN = "the server is shutting down"
CANCELLED = "the response was cancelled"
OVERDUE = "the request's deadline passed"


@dataclass(frozen=True, slots=True)
class BackgroundWork:
    """A response to run in the background."""

    answer: ResponseAnswer
    """The response itself."""
    generations: Generations
    """Runs the request on its model."""
    caller: Caller
    """Who asked for it. Its `closing` says why the response ends early, also after the client's own request."""
    request: GenerationRequest
    """The request for the engine."""
    names: Mapping[str, str]
    """As `Generations` takes them."""
    inputs: list[Item]
    """The items of its request, stored beside it."""


@dataclass(slots=True)
class _Running:
    """BackgroundWork under way.

    Attributes:
        scope: ends it.
        over: set when the engine holds nothing for it any more and the response is stored.
    """

    work: BackgroundWork
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    over: anyio.Event = field(default_factory=anyio.Event)


class BackgroundResponses:
    """Runs each response in a scope of its own, which lies in the server's and in no client's.

    A response ends by itself, by `cancel`, or at its deadline, and is then stored; with the server, it is lost.
    """

    def __init__(self, store: ResponseStore, *, timeout: float) -> None:
        """Keep responses in `store`, and give each `timeout` seconds."""
        self._store = store
        self._timeout = timeout
        self._tasks: TaskGroup | None = None
        self._running: dict[str, _Running] = {}

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Responses can be started inside. Leaving ends those that run, and waits until the engine released them."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            try:
                yield
            finally:
                self._tasks = None
                for running in self._running.values():
                    running.work.caller.closing.reason = SHUTDOWN
                tasks.cancel_scope.cancel()

    async def start(self, work: BackgroundWork) -> None:
        """Run a response; waits until the engine accepted it.

        Raises what `Generations.open` raises, and `Unavailable` where the server ends.
        """
        if self._tasks is None:
            raise Unavailable("The server is shutting down.", code="shutting_down")
        await self._tasks.start(self._run, work)

    def find(self, response_id: str) -> BackgroundWork | None:
        """A response that still runs."""
        running = self._running.get(response_id)
        return running.work if running else None

    async def cancel(self, response_id: str) -> None:
        """End a response, if it still runs; waits until the engine released all that it held."""
        if running := self._running.get(response_id):
            running.work.caller.closing.reason = CANCELLED
            running.scope.cancel()
            await running.over.wait()

    async def _run(self, work: BackgroundWork, *, task_status: TaskStatus[None]) -> None:
        running = _Running(work)
        try:
            with running.scope:
                await self._generate(running, task_status)
            if not work.answer.ended:
                work.answer.cancel()
            self._store.put(work.answer.content(), work.inputs)
        finally:
            self._running.pop(work.answer.id, None)
            running.over.set()

    async def _generate(self, running: _Running, task_status: TaskStatus[None]) -> None:
        work = running.work
        try:
            async with work.generations.open(work.caller, work.request, work.names) as admission:
                self._running[work.answer.id] = running
                task_status.started()
                await self._answer(running, admission)
        except Exception as error:
            if work.answer.id not in self._running:
                raise  # it was refused: whoever started it is told
            work.answer.fail(errors.report(error))

    async def _answer(self, running: _Running, admission: Admission) -> None:
        with anyio.CancelScope(deadline=anyio.current_time() + self._timeout) as patience:
            generation = await admission.granted()
            running.work.answer.start()
            for end in await generation.outcomes():
                running.work.answer.add(generation.prompt_tokens, end)
        if patience.cancelled_caught:
            running.work.caller.closing.reason = OVERDUE
            raise RefusedError(DEADLINE_PASSED)
