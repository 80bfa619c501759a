"""Models in the cache that a running server has pulled: it serves them again after a restart, and may remove them.

Each repository's folder in the cache has a list of them, so that the list goes with the files.
"""

import fcntl
import logging
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import orjson

from gateway.hub.cache import HubCache, repository_of
from gateway.hub.choice import choose
from gateway.hub.errors import HubError
from gateway.hub.reference import HubReference

logger = logging.getLogger(__name__)

LIST = "llama-gateway.json"
"""Name of the list in a repository's folder. Other programs of the hub ignore it."""
LOCKS = ".locks"
"""Folder of the locks in a cache."""
_LOCK = "llama-gateway.lock"


@dataclass(frozen=True, slots=True)
class _Listed:
    """The list of one repository."""

    models: frozenset[HubReference] = frozenset()
    """Models that were pulled."""
    files: frozenset[str] = frozenset()
    """Files that were not there before. Others are not removed."""


class PulledModels:
    """Models that were pulled. Its methods read and write files."""

    def __init__(self, cache: HubCache) -> None:
        """Keep the lists in a cache."""
        self._cache = cache

    def files(self, repository: str) -> frozenset[str]:
        """Return the names of the files of a repository that are complete."""
        return frozenset(name for files in self._cache.snapshots(repository) for name in files)

    def add(self, reference: HubReference, before: Collection[str]) -> None:
        """List a model that is complete. `before` are the files that were there before it was pulled."""
        with self._locked(reference.repository):
            listed = self._read(reference.repository)
            new = self._files_of(reference) - set(before)
            self._write(reference.repository, _Listed(listed.models | {reference}, listed.files | new))

    def all(self) -> Iterator[tuple[HubReference, Path]]:
        """Yield the models that are still complete, with their files, or their first parts."""
        for path in sorted(self._cache.root.glob(f"models--*--*/{LIST}")):
            repository = repository_of(path.parent)
            for reference in sorted(self._read(repository).models, key=str):
                if (file := self._cache.find(reference)) is not None:
                    yield reference, file

    def remove(self, reference: HubReference) -> int:
        """Remove a model from the list, and its files if they came with it and no other listed model has them.

        Returns:
            The bytes that are free now.
        """
        repository = reference.repository
        with self._locked(repository):
            listed = self._read(repository)
            models = listed.models - {reference}
            kept = {name for model in models for name in self._files_of(model)}
            removed = (self._files_of(reference) & listed.files) - kept
            self._write(repository, _Listed(models, listed.files - removed))  # first: it may not name what is gone
            return self._cache.remove(repository, removed) if removed else 0

    @contextmanager
    def _locked(self, repository: str) -> Iterator[None]:
        """Lock the list of a repository: other servers may share the cache.

        The lock is a file beside those of huggingface-hub, because NFS locks only files that are open for writing.
        """
        place = self._cache.root / LOCKS / self._cache.folder(repository).name / _LOCK
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _files_of(self, reference: HubReference) -> set[str]:
        try:
            return set(choose(self.files(reference.repository), reference))
        except HubError:
            return set()

    def _read(self, repository: str) -> _Listed:
        path = self._cache.folder(repository) / LIST
        try:
            found = orjson.loads(path.read_bytes())
            return _Listed(frozenset(map(HubReference.parse, found["models"])), frozenset(map(str, found["files"])))
        except FileNotFoundError:
            return _Listed()
        except (OSError, ValueError, LookupError, TypeError) as error:
            logger.warning("%s cannot be read, and its models are not served: %s", path, error)
            return _Listed()

    def _write(self, repository: str, listed: _Listed) -> None:
        path = self._cache.folder(repository) / LIST
        if not listed.models and not listed.files:
            path.unlink(missing_ok=True)
            return
        new = path.with_suffix(".new")
        new.write_bytes(orjson.dumps({"models": sorted(map(str, listed.models)), "files": sorted(listed.files)}))
        new.replace(path)
