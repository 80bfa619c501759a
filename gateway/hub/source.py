"""Models from the hub or from the cache. Blocks its thread: the server runs it in a process of its own."""

import logging
from collections.abc import Callable
from pathlib import Path

from gateway.hub.cache import HubCache
from gateway.hub.choice import choose
from gateway.hub.client import HubClient, Listing, RemoteFile
from gateway.hub.download_progress import DownloadProgress
from gateway.hub.errors import HubError
from gateway.hub.reference import HubReference
from gateway.hub.transfer import Transfer, check_room

logger = logging.getLogger(__name__)


class HubSource:
    """Finds the file of a model, and downloads it if it is not on this machine."""

    def __init__(self, client: HubClient, cache: HubCache, *, offline: bool) -> None:
        """Create the source.

        Args:
            client: Hub to ask.
            cache: Place of the files.
            offline: True to use only files that are on this machine.
        """
        self._client = client
        self._cache = cache
        self._offline = offline

    def fetch(self, reference: HubReference, progress: Callable[[DownloadProgress], None]) -> Path:
        """Return the path of a model's file, or of its first part.

        If the hub does not list the repository, or the version there cannot be had, for whatever reason, a file on this
        machine will do.

        Args:
            reference: Model to find.
            progress: Called with what is on this machine.

        Raises:
            HubError: The model cannot be had.
            OSError: It cannot be written.
        """
        if self._offline:
            return self._cached(reference, "and the hub is not asked: --offline")
        try:
            listing = self._client.listing(reference.repository)
        except HubError as error:
            path = self._cached(reference, f"and {error}")
            _report(reference, error)
            return path
        try:
            return self._download(reference, listing, progress)
        except (HubError, OSError) as error:
            if (cached := self._cache.find(reference)) is None:
                raise
            _report(reference, error)
            return cached

    def _cached(self, reference: HubReference, obstacle: str) -> Path:
        """Return the path of a model that is complete on this machine.

        Raises:
            HubError: There is none.
        """
        if (path := self._cache.find(reference)) is None:
            raise HubError(f"{reference} is not in {self._cache.root}, {obstacle}")
        return path

    def _download(
        self, reference: HubReference, listing: Listing, progress: Callable[[DownloadProgress], None]
    ) -> Path:
        names = choose(listing.files, reference)
        files = [listing.files[name] for name in names]
        self._check_room(reference, files)
        total = max(sum(file.size for file in files), 1)
        transfer = Transfer(self._client, reference.repository, listing.commit)
        before = 0
        for file in files:

            def report(size: int, before: int = before, file: RemoteFile = file) -> None:
                progress(DownloadProgress((before + size) / total, file.digest, file.size, size))

            transfer.run(file, self._cache.blob(reference.repository, file.digest), report)
            report(file.size)
            before += file.size
        links = [self._cache.link(reference.repository, listing.commit, file.name, file.digest) for file in files]
        return links[0]

    def _check_room(self, reference: HubReference, files: list[RemoteFile]) -> None:
        """Raise `HubError` if there is no room for all files together, before any of them is downloaded."""
        missing = sum(file.size - self._cache.size_of(reference.repository, file.digest) for file in files)
        check_room(self._cache.root, missing, str(reference))


def _report(reference: HubReference, obstacle: Exception) -> None:
    logger.warning("%s is used as it is on this machine: %s", reference, obstacle)
