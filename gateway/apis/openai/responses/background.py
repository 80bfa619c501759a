"""Responses that run in the background, without a waiting client."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus

import anyio
from anyio.abc import TaskGroup, TaskStatus

from engine import shutting_down
from gateway.apis.openai.responses.store.store import ResponseStore
from gateway.apis.openai.responses.work import ResponseWork
from gateway.middleware import errors
from gateway.middleware.caller import OVERDUE, SHUTDOWN, Cause
from gateway.middleware.errors import DEADLINE_PASSED, RATE_LIMIT, Problem, RefusedError, retry_after
from gateway.serving.admission import Admission
from gateway.serving.records import Operation

logger = logging.getLogger(__name__)

ATTEMPTS, PAUSE = 10, 1.0
"""How often a store that fails is asked to keep an ended response, and the seconds between."""
CANCELLED = "the response was cancelled"


@dataclass(slots=True)
class _Running:
    """A response that runs, or that the engine has not yet accepted."""

    work: ResponseWork
    """The work under way."""
    size: int
    """`ResponseWork.size`."""
    stored: bool = False
    """True once the ended response is stored."""
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    """Cancels the work."""
    finished: anyio.Event = field(default_factory=anyio.Event)
    """Set after the engine has released the request and the response is stored."""

    def cancel(self) -> None:
        """Cancel the work. Has no effect on a response that has ended."""
        if not self.work.answer.ended:
            _close(self, CANCELLED, Cause.CLIENT_CANCELLED)
            self.scope.cancel()


class BackgroundResponses:
    """Runs each response in its own cancel scope, inside the server's scope and outside the client's.

    A response ends on completion, by `cancel`, or at its deadline, and is then stored. If the server stops, it is lost,
    or has failed where gateways share their store.
    Responses are looked up among those of one owner, as in `ResponseStore`.
    """

    def __init__(self, store: ResponseStore, *, timeout: float, max_per_owner: int, max_bytes: int) -> None:
        """Create the runner of background responses.

        Args:
            store: keeps the ended responses.
            timeout: limit of each response, in seconds.
            max_per_owner: maximum number of responses of one owner that run or wait. They hold no connection, so that
                otherwise one client could fill the queue.
            max_bytes: maximum size of the input items of these responses, which are kept until they end.
        """
        self._store = store
        self._timeout = timeout
        self._max_per_owner = max_per_owner
        self._max_bytes = max_bytes
        self._tasks: TaskGroup | None = None
        self._owners: dict[str, dict[str, _Running]] = {}

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
                for owned in self._owners.values():
                    for running in owned.values():
                        _close(running, SHUTDOWN, Cause.SHUTDOWN)
                tasks.cancel_scope.cancel()

    async def start(self, work: ResponseWork) -> None:
        """Start a response. Waits until the engine accepts it.

        Raises the errors of `Generations.open`, `RefusedError` (429) if the owner has too many running responses, and
        `Unavailable` if the server is stopping.
        """
        if self._tasks is None:
            raise shutting_down()
        running = self._add(work)
        try:
            await self._tasks.start(self._run, running)
        except BaseException:
            self._forget(work)
            raise

    def _add(self, work: ResponseWork) -> _Running:
        """Count the work against its owner's limits. Raises `RefusedError` (429) beyond them."""
        owned = self._owners.get(work.owner, {})
        if len(owned) >= self._max_per_owner:
            raise limit_reached(
                f"At most {self._max_per_owner} background responses of one client may run or wait at the same time."
            )
        running = _Running(work, work.size)
        if owned and running.size + sum(other.size for other in owned.values()) > self._max_bytes:
            raise limit_reached(
                f"The inputs of one client's background responses may have {self._max_bytes} bytes together."
            )
        self._owners.setdefault(work.owner, {})[work.answer.id] = running
        return running

    async def find(self, owner: str, response_id: str) -> ResponseWork | None:
        """Return the work of an owner's running response, or None.

        Waits for the end of one that is being stored: who sees that it is completed must find it in its conversation.
        """
        running = self._owners.get(owner, {}).get(response_id)
        if running is None:
            return None
        if running.work.answer.ended:
            await running.finished.wait()
            return None
        return running.work

    async def cancel(self, owner: str, response_id: str) -> bool:
        """Cancel an owner's response if it still runs. Waits until the engine releases its resources.

        Returns False if no such response runs.
        """
        if (running := self._owners.get(owner, {}).get(response_id)) is None:
            return False
        running.cancel()
        await running.finished.wait()
        return True

    async def _run(self, running: _Running, *, task_status: TaskStatus[None]) -> None:
        work = running.work
        try:
            with running.scope, work.caller.held.pop_all():  # the response outlives the request that held the model
                await self._generate(running, task_status)
            if not work.answer.ended:
                work.answer.cancel()
            if not running.stored:
                await self._keep(work)
        finally:
            self._forget(work)
            running.finished.set()

    async def _keep(self, work: ResponseWork) -> None:
        try:
            await _patiently(work.end)
        except RefusedError as refused:
            logger.error("the response %s is lost: %s", work.answer.id, refused)  # noqa: TRY400 - no defect of ours

    def _forget(self, work: ResponseWork) -> None:
        """Remove a response that no longer runs. Has no effect if it was removed before."""
        self._store.forget(work.answer.id)
        owned = self._owners.get(work.owner, {})
        owned.pop(work.answer.id, None)
        if not owned:
            self._owners.pop(work.owner, None)

    async def _generate(self, running: _Running, task_status: TaskStatus[None]) -> None:
        work, accepted = running.work, False
        try:
            async with work.generations.open(
                work.caller, work.request, work.names, operation=Operation.CHAT
            ) as admission:
                await self._store.announce(work.owner, work.answer.stored(work.inputs), running.cancel)
                accepted = True
                task_status.started()
                await self._answer(running, admission)
        except Exception as error:
            if not accepted:
                raise  # refused before its start: `start` raises it to its caller
            work.answer.fail(errors.report(error))

    async def _start(self, work: ResponseWork) -> None:
        work.answer.start()
        with suppress(RefusedError):  # the state that others see is late, but nothing is lost
            await self._store.update(work.owner, work.answer.stored(work.inputs))

    async def _answer(self, running: _Running, admission: Admission) -> None:
        with anyio.CancelScope(deadline=anyio.current_time() + self._timeout) as deadline:
            generation = await admission.granted()
            await self._start(running.work)
            for end in await generation.outcomes():
                await running.work.answer.add_whole(generation.prompt_tokens, end)
        if deadline.cancelled_caught:
            _close(running, OVERDUE, Cause.DEADLINE)
            raise RefusedError(DEADLINE_PASSED)
        await _patiently(running.work.end)
        running.stored = True


async def _patiently(change: Callable[[], Awaitable[None]]) -> None:
    """Change a store. Waits for one that fails, but not for ever: no client waits here. Raises its last error."""
    for _ in range(ATTEMPTS - 1):
        with suppress(RefusedError):
            await change()
            return
        await anyio.sleep(PAUSE)
    await change()


def _close(running: _Running, reason: str, cause: Cause) -> None:
    closing = running.work.caller.closing
    closing.reason, closing.cause = reason, cause


def limit_reached(message: str) -> RefusedError:
    """Return the 429 error for a client that has reached a limit of background responses."""
    return RefusedError(
        Problem(
            status=HTTPStatus.TOO_MANY_REQUESTS,
            message=message,
            type=RATE_LIMIT,
            code="background_limit_reached",
            param="background",
            headers=retry_after(1),
        )
    )
