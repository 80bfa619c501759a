"""Models of the hub that clients pull and delete while the server runs."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias
from weakref import WeakValueDictionary

import anyio
from anyio import to_thread

from gateway.hub.cache import HubCache
from gateway.hub.download_progress import DownloadProgress
from gateway.hub.errors import HubError
from gateway.hub.pulled import PulledModels
from gateway.hub.reference import HOSTS, SCHEME, HubReference
from gateway.pulls.downloads import Downloads, Watcher
from gateway.serving.model import Model
from gateway.serving.models import Models
from gateway.serving.sources import EngineHost, EngineSource
from gateway.settings import Settings
from gateway.settings.table import ServedModel

logger = logging.getLogger(__name__)

Fetch: TypeAlias = Callable[[HubReference, Callable[[DownloadProgress], None]], Awaitable[Path]]
"""Downloads a model and returns its file, or its first part."""
MakeModel: TypeAlias = Callable[[ServedModel, EngineSource, frozenset[str]], Model]
"""Returns a model with the source of its engine and the names that requests may use."""


def name_of(reference: HubReference) -> str:
    """Return the name of a pulled model, as Ollama has it."""
    return f"{HOSTS[0]}/{str(reference).removeprefix(SCHEME)}"


@dataclass(frozen=True, slots=True)
class PullParts:
    """Parts of `Pulls` that are opened before the gateway."""

    host: EngineHost
    """Engines of all models."""
    cache: HubCache
    """Place of the files."""
    fetch: Fetch
    """Downloads a model."""


class Pulls:
    """Models that clients pull, serve on demand, and delete."""

    def __init__(
        self,
        models: Models,
        parts: PullParts,
        settings: Settings,
        make: MakeModel,
    ) -> None:
        """Create the object, without models.

        Args:
            models: the models of the server, which pulled ones join.
            parts: parts that are opened before.
            settings: settings of all models.
            make: makes a model.
        """
        self._models = models
        self._host = parts.host
        self._fetch = parts.fetch
        self._pulled = PulledModels(parts.cache)
        self._root = parts.cache.root
        self._settings = settings
        self._make = make
        self._downloads = Downloads(self._pull)
        self._served: dict[str, HubReference] = {}
        self._deleted: dict[str, HubReference] = {}  # models whose engines and files are still there
        self._locks = WeakValueDictionary[str, anyio.Lock]()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Serve the models that were pulled before, and pull and delete inside the context."""
        for reference, file in await to_thread.run_sync(lambda: list(self._pulled.all())):
            if not self._is_operators(reference):
                await self._serve(reference, file)
        async with self._downloads.open():
            yield
        for name in tuple(self._deleted):  # the removals that have ended with the server
            await self._remove_files(name)

    def pull(self, reference: HubReference) -> AbstractAsyncContextManager[Watcher]:
        """Begin to pull a model, or join those that wait for it. Raises what `Downloads.watch` does."""
        return self._downloads.watch(reference)

    def was_pulled(self, model: Model) -> bool:
        """Return True if a model was pulled, and may be deleted."""
        return model.name in self._served

    async def delete(self, model: Model) -> None:
        """Serve a pulled model no more, and remove its files once no request uses it.

        Requests that use it, or wait for it, go on to their ends. Without such requests this waits for the removal.

        Raises:
            Unavailable: the server is stopping.
        """
        tasks = self._downloads.tasks
        reference = self._deleted[model.name] = self._served.pop(model.name)
        self._models.leave(model.name)
        removed = anyio.Event()
        tasks.start_soon(self._remove, model.name, reference, removed)
        if not self._host.used(model.name) and not self._lock(reference).locked():
            await removed.wait()

    async def _pull(self, reference: HubReference, progress: Callable[[DownloadProgress], None]) -> None:
        async with self._lock(reference):  # also against the removal of a model with the same files
            with self._explained(reference):
                before = await to_thread.run_sync(self._pulled.files, reference.repository)
                file = await self._fetch(reference, progress)
                with anyio.CancelScope(shield=True):  # short, and all or nothing
                    if not self._is_operators(reference):
                        await to_thread.run_sync(self._pulled.add, reference, before)
                        await self._serve(reference, file)
            logger.info("model pulled", extra={"model": name_of(reference)})

    @contextmanager
    def _explained(self, reference: HubReference) -> Iterator[None]:
        """Raise every failure as a `HubError`. Clients do not see the folder of the cache in it; the log has it."""
        try:
            yield
        except (HubError, OSError) as error:
            logger.warning("cannot pull %s: %s", reference, error)
            code = error.code if isinstance(error, HubError) else None
            raise HubError(str(error).replace(str(self._root), "the hub's cache"), code=code) from error

    def _is_operators(self, reference: HubReference) -> bool:
        """Return True if a model that was not pulled has one of the names."""
        others = (model for model in self._models.all if not self.was_pulled(model))
        return any(not model.names.isdisjoint(reference.names) for model in others)

    async def _serve(self, reference: HubReference, file: Path) -> None:
        name = name_of(reference)
        served = self._settings.joining(name, file)
        self._models.join(self._make(served, await self._host.join(served), reference.names))
        self._served[name] = reference
        self._deleted.pop(name, None)

    async def _remove(self, name: str, reference: HubReference, removed: anyio.Event) -> None:
        try:
            async with self._lock(reference):
                if name in self._deleted:  # it may have been pulled again, or removed by an earlier deletion
                    await self._host.leave(name)
                    await self._remove_files(name)
        finally:
            removed.set()

    async def _remove_files(self, name: str) -> None:
        reference = self._deleted.pop(name)
        try:
            with anyio.CancelScope(shield=True):  # short, and all or nothing
                freed = await to_thread.run_sync(self._pulled.remove, reference)
            logger.info("model deleted", extra={"model": name, "freed": freed})
        except (OSError, RuntimeError) as error:  # the latter without a thread
            logger.error("cannot remove the files of %s: %s", name, error)  # noqa: TRY400 - one line

    def _lock(self, reference: HubReference) -> anyio.Lock:
        """Return the lock of a repository's files."""
        return self._locks.setdefault(reference.repository, anyio.Lock())
