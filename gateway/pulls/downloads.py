"""Downloads of models, each of which serves all requests that wait for it."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import TypeAlias

import anyio
from anyio.abc import TaskGroup

from engine import Busy, shutting_down
from engine.notifier import Notifier
from gateway.hub.download_progress import DownloadProgress
from gateway.hub.reference import HubReference

MAX_DOWNLOADS = 4
"""Downloads at the same time. Further ones are refused."""

Download: TypeAlias = Callable[[HubReference, Callable[[DownloadProgress], None]], Awaitable[None]]
"""Downloads a model and serves it, and reports the progress. May be cancelled at any time."""


@dataclass(eq=False, slots=True)
class _Running:
    """A download, which ends when it is complete, or when the last request has left."""

    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    """Scope of the download."""
    watchers: int = 0
    """Requests that wait for it."""
    files: dict[str, DownloadProgress] = field(default_factory=dict)
    """Latest progress of each file, by digest."""
    ended: bool = False
    """True once it is complete or has failed."""
    failure: Exception | None = None
    """Why it has failed."""
    changed: Notifier = field(default_factory=Notifier)
    """Notified of each change."""

    def report(self, progress: DownloadProgress) -> None:
        """Take the progress of a file."""
        self.files[progress.digest] = progress
        self.changed.notify()

    def end(self, failure: Exception | None) -> None:
        """Take the outcome."""
        self.ended, self.failure = True, failure
        self.changed.notify()


class Watcher:
    """One request's view of a download."""

    def __init__(self, running: _Running) -> None:
        self._running = running
        self._seen: dict[str, DownloadProgress] = {}

    async def news(self) -> Sequence[DownloadProgress]:
        """Wait for progress and return the latest of each file; an empty sequence once the model is served.

        Raises:
            HubError: the model cannot be had.
        """
        running = self._running
        while True:
            news = [at for digest, at in running.files.items() if self._seen.get(digest) != at]
            if news:
                self._seen = dict(running.files)
                return news
            if running.failure is not None:
                raise running.failure
            if running.ended:
                return ()
            await running.changed.wait()


class Downloads:
    """Downloads that run now: one for each model, however many requests ask for it."""

    def __init__(self, download: Download) -> None:
        self._download = download
        self._running: dict[HubReference, _Running] = {}
        self._tasks: TaskGroup | None = None
        self._context = copy_context()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Download inside the context. Leaving it ends all downloads."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            try:
                yield
            finally:
                self._tasks = None
                tasks.cancel_scope.cancel()

    @property
    def tasks(self) -> TaskGroup:
        """Task group that lives as long as downloads may run.

        Raises:
            Unavailable: the server is stopping.
        """
        if self._tasks is None:
            raise shutting_down()
        return self._tasks

    @asynccontextmanager
    async def watch(self, reference: HubReference) -> AsyncIterator[Watcher]:
        """Begin the download of a model, or join the one that runs. It ends with the last request that leaves.

        Raises:
            Busy: too many models are downloaded.
            Unavailable: the server is stopping.
        """
        running = self._running.get(reference) or self._begin(reference, self.tasks)
        running.watchers += 1
        try:
            yield Watcher(running)
        finally:
            running.watchers -= 1
            if not running.watchers and not running.ended:
                running.scope.cancel()
                self._forget(reference, running)  # a later request begins another one

    def _begin(self, reference: HubReference, tasks: TaskGroup) -> _Running:
        if len(self._running) >= MAX_DOWNLOADS:
            raise Busy(f"{MAX_DOWNLOADS} models are being pulled; try again later.", code="queue_full")
        running = self._running[reference] = _Running()
        self._context.copy().run(tasks.start_soon, self._run, reference, running)
        return running

    async def _run(self, reference: HubReference, running: _Running) -> None:
        with running.scope:
            try:
                await self._download(reference, running.report)
            except Exception as error:  # noqa: BLE001 - raised in the requests that wait
                running.end(error)
            else:
                running.end(None)
            finally:
                self._forget(reference, running)

    def _forget(self, reference: HubReference, running: _Running) -> None:
        if self._running.get(reference) is running:
            del self._running[reference]
