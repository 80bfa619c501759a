"""Responses that run in the background, without a waiting client."""

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
    """The response under construction."""
    generations: Generations
    """Generations of the request's model."""
    caller: Caller
    """Sender of the request. Its `closing` has the reason for an early end, even after the client has its answer."""
    request: GenerationRequest
    """The request for the engine."""
    names: Mapping[str, str]
    """The client's names of fields, as in `Generations`."""
    inputs: list[Item]
    """Input items of the request, stored with the response."""


@dataclass(slots=True)
class _Running:
    """A response that runs."""

    work: BackgroundWork
    """The work under way."""
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    """Cancels the work."""
    finished: anyio.Event = field(default_factory=anyio.Event)
    """Set after the engine has released the request and the response is stored."""


class BackgroundResponses:
    """Runs each response in its own cancel scope, inside the server's scope and outside the client's.

    A response ends on completion, by `cancel`, or at its deadline, and is then stored. If the server stops, it is lost.
    """

    def __init__(self, store: ResponseStore, *, timeout: float) -> None:
        """Create the runner of background responses.

        Args:
            store: keeps the ended responses.
            timeout: limit of each response, in seconds.
        """
        self._store = store
        self._timeout = timeout
        self._tasks: TaskGroup | None = None
        self._running: dict[str, _Running] = {}

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Accept responses inside the context.

        Leaving it cancels the running responses, and waits until the engine releases them.
        """
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
        """Start a response. Waits until the engine accepts it.

        Raises the errors of `Generations.open`, and `Unavailable` if the server is stopping.
        """
        if self._tasks is None:
            raise Unavailable("The server is shutting down.", code="shutting_down")
        await self._tasks.start(self._run, work)

    def find(self, response_id: str) -> BackgroundWork | None:
        """Return the work of a running response, or None."""
        running = self._running.get(response_id)
        return running.work if running else None

    async def cancel(self, response_id: str) -> None:
        """Cancel a response if it still runs. Waits until the engine releases its resources."""
        if running := self._running.get(response_id):
            running.work.caller.closing.reason = CANCELLED
            running.scope.cancel()
            await running.finished.wait()

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
            running.finished.set()

    async def _generate(self, running: _Running, task_status: TaskStatus[None]) -> None:
        work = running.work
        try:
            async with work.generations.open(work.caller, work.request, work.names) as admission:
                self._running[work.answer.id] = running
                task_status.started()
                await self._answer(running, admission)
        except Exception as error:
            if work.answer.id not in self._running:
                raise  # refused before its start: `start` raises it to its caller
            work.answer.fail(errors.report(error))

    async def _answer(self, running: _Running, admission: Admission) -> None:
        with anyio.CancelScope(deadline=anyio.current_time() + self._timeout) as deadline:
            generation = await admission.granted()
            running.work.answer.start()
            for end in await generation.outcomes():
                running.work.answer.add(generation.prompt_tokens, end)
        if deadline.cancelled_caught:
            running.work.caller.closing.reason = OVERDUE
            raise RefusedError(DEADLINE_PASSED)
