"""Pool of workers: which job runs where, and the replacement of workers."""

import logging
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import anyio

from engine import Busy, ClientTurns, EngineError, Unavailable, shutting_down
from gateway.preparation.workers.messages import Job
from gateway.preparation.workers.process import ForkServer, Worker, WorkerDiedError, open_fork_server

logger = logging.getLogger(__name__)

WORKERS = 2
"""Workers of a pool. The first takes no large jobs."""
LARGE = 64 * 1024
"""Bytes of the payload from which a job is large."""
MAX_WAITING = 512
"""Maximum of jobs that wait for a worker."""
MAX_WAIT = 60.0
"""Seconds that a job waits for a worker."""
MOST_WARM_UPS = 16
"""Maximum of warm-ups. A worker runs all of them before its first job."""
RESTART_DELAY = 1.0
"""Seconds between the end of a fork server, or the failed start of a worker, and the next attempt."""

MOST_FAILURES = WORKERS + 2
"""Failures in a row from which on jobs do not wait for the next attempt. The end of a fork server may be one less."""


@dataclass(eq=False, slots=True)
class _Ticket:
    """A job's place in the queue."""

    worker: Worker | None = None
    """Worker that the job got."""
    failed: bool = False
    """True if no worker can be started for the job."""
    decided: anyio.Event = field(default_factory=anyio.Event)
    """Set once one of them is."""


class WorkerPool:
    """Runs jobs in workers. Small jobs never wait for large ones, and clients take turns."""

    def __init__(self) -> None:
        """Create a pool without workers. Jobs wait until it is open."""
        self._idle: dict[int, Worker] = {}
        self._slots: set[int] = set()
        self._failures: Counter[str] = Counter()
        self._small: ClientTurns[_Ticket] = ClientTurns()
        self._large: ClientTurns[_Ticket] = ClientTurns()
        self._warm_ups: dict[Job, None] = {}
        self._ended = False

    async def run(self, client: str, job: Job, payload: bytes) -> bytes:
        """Wait for a worker, run a job, and return its result. A job whose caller is cancelled is killed.

        Jobs have no effects, so one whose worker dies runs again: the kernel may have killed it for memory. It runs
        twice at most, because it may be the job that kills its workers.

        Args:
            client: takes turns with the other clients.
            job: function to call.
            payload: second argument of the function.

        Raises:
            Busy: too many jobs wait, or the machine is too busy for the job.
            Unavailable: no worker can be started, or the pool has ended.
            EngineError: the job failed, or both workers died.
            TimeoutError: the job used up its CPU time.
        """
        with suppress(WorkerDiedError):
            return await self._run(client, job, payload)
        return await self._run(client, job, payload)

    async def _run(self, client: str, job: Job, payload: bytes) -> bytes:
        worker = await self._acquire(client, self._large if len(payload) >= LARGE else self._small)
        try:
            return await worker.call(job, payload)
        finally:
            self._offer(worker)

    def warm_up(self, job: Job) -> None:
        """Run a job, without a payload, in each worker that starts from now on, before it takes others.

        Only the latest jobs are kept: those before may be of models that have left the server.
        """
        if len(self._warm_ups) >= MOST_WARM_UPS:
            self._warm_ups.pop(next(iter(self._warm_ups)))
        self._warm_ups[job] = None

    @asynccontextmanager
    async def open(self, modules: Sequence[str]) -> AsyncIterator[None]:
        """Start workers at once, so that the first request does not wait for them or compete with them, and end them.

        Args:
            modules: imported once for all workers, the first before there is one: those of the jobs' functions.
        """
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._keep, modules)
            try:
                yield
            finally:
                self._ended = True
                tasks.cancel_scope.cancel()

    async def _keep(self, modules: Sequence[str]) -> None:
        """Keep a fork server and its workers running."""
        while True:
            try:
                async with open_fork_server(modules) as server, anyio.create_task_group() as tasks:
                    for slot in range(WORKERS):
                        tasks.start_soon(self._keep_worker, server, slot)
                    code = await server.exited()
                    tasks.cancel_scope.cancel()
                self._fail("the fork server of the preparation ended with code %d", code)
            except (OSError, RuntimeError) as error:  # the latter without a thread in which Trio starts it
                self._fail("the fork server of the preparation cannot be started: %s", error)
            await anyio.sleep(RESTART_DELAY)

    async def _keep_worker(self, server: ForkServer, slot: int) -> None:
        """Keep a worker in a slot, one after another."""
        while True:
            try:
                if await self._run_worker(server, slot):
                    continue
                self._fail("a worker of the preparation did not start")
            except OSError as error:
                self._fail("a worker of the preparation cannot be started: %s", error)
            await anyio.sleep(RESTART_DELAY)

    async def _run_worker(self, server: ForkServer, slot: int) -> bool:
        """Run a worker in a slot to its end. Returns False if it did not start."""
        async with server.replace(slot) as worker:
            self._slots.add(slot)
            try:
                if started := await worker.wait_until_ready():
                    self._failures.clear()
                    await self._use(worker)
                return started
            finally:
                self._slots.discard(slot)

    async def _use(self, worker: Worker) -> None:
        """Let a worker run jobs until it is gone."""
        try:
            await self._warm(worker)
            self._offer(worker)
            await worker.gone.wait()
        finally:
            worker.gone.set()
            self._idle.pop(worker.slot, None)

    def _fail(self, message: str, *details: object) -> None:
        """Log a failed start, once until a worker starts. After some, jobs fail that no running worker would take."""
        if message not in self._failures:
            logger.error(message, *details)
        self._failures[message] += 1
        if self._failures.total() >= MOST_FAILURES:
            if WORKERS - 1 not in self._slots:
                _refuse(self._large)
            if not self._slots:
                _refuse(self._small)

    async def _warm(self, worker: Worker) -> None:
        """Run the warm-ups. One that fails or uses its worker up is not tried again: no worker would run a job."""
        for job in list(self._warm_ups):
            with suppress(EngineError, TimeoutError):
                await worker.call(job, b"")
                if not worker.gone.is_set():
                    continue
            self._warm_ups.pop(job, None)  # with another worker it may have failed, too
            if worker.gone.is_set():
                return

    async def _acquire(self, client: str, queue: ClientTurns[_Ticket]) -> Worker:
        if self._ended:
            raise shutting_down()
        if len(self._small) + len(self._large) >= MAX_WAITING:
            raise Busy("Too many requests wait for their preparation.", code="queue_full")
        ticket = _Ticket()
        queue.add(client, ticket)
        self._assign()
        try:
            with anyio.move_on_after(MAX_WAIT):
                await ticket.decided.wait()
        except BaseException:
            if ticket.worker is not None:
                self._offer(ticket.worker)
            raise
        finally:
            if ticket.worker is None:
                queue.discard(client, ticket)
        if ticket.failed:
            raise Unavailable("No process can be started that prepares the request.", code="preparation_unavailable")
        if ticket.worker is None:
            raise Busy("The request waited too long for its preparation.", code="queue_timeout")
        return ticket.worker

    def _offer(self, worker: Worker) -> None:
        """Take a worker back, unless it is gone."""
        if not worker.gone.is_set():
            self._idle[worker.slot] = worker
            self._assign()

    def _assign(self) -> None:
        """Give waiting jobs to idle workers. All assignments are made here."""
        for slot in sorted(self._idle):
            worker = self._idle[slot]
            if worker.lost:
                del self._idle[slot]
                worker.gone.set()
            elif ticket := self._next(slot):
                del self._idle[slot]
                ticket.worker = worker
                ticket.decided.set()

    def _next(self, slot: int) -> _Ticket | None:
        """Return the next job for a slot. Only the last takes large ones, and it takes them first."""
        if self._large and slot == WORKERS - 1:
            return self._large.take()
        return self._small.take() if self._small else None


def _refuse(queue: ClientTurns[_Ticket]) -> None:
    while queue:
        ticket = queue.take()
        ticket.failed = True
        ticket.decided.set()
