"""Download of one file: resumed after cuts and restarts, and verified by its checksum."""

import fcntl
import hashlib
import logging
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from gateway.hub.cache import PARTIAL, is_at
from gateway.hub.client import HubClient, RemoteFile, TransientError
from gateway.hub.errors import HubError

logger = logging.getLogger(__name__)

_CHUNK = 2**20
_PAUSES = (1, 2, 4, 8, 16)
"""Seconds before the attempts after one that brought no byte."""
_SHA256_DIGITS = 64


class Transfer:
    """Download of one file of a commit to its place in the cache.

    The hub's own download drops what it has when its process ends. This one keeps it and continues.
    """

    def __init__(
        self, client: HubClient, repository: str, commit: str, *, pause: Callable[[float], None] = time.sleep
    ) -> None:
        """Download from a commit of a repository. `pause` waits for some seconds."""
        self._client = client
        self._repository = repository
        self._commit = commit
        self._pause = pause

    def run(self, file: RemoteFile, blob: Path, progress: Callable[[int], None]) -> None:
        """Download a file to `blob`, unless it is there. Only one process at a time does so; others wait for it.

        Args:
            file: File to download.
            blob: Place of its content.
            progress: Called with the bytes that are there.

        Raises:
            HubError: The file cannot be had, is damaged, or there is no room for it.
        """
        blob.parent.mkdir(parents=True, exist_ok=True)
        place = blob.with_name(blob.name + PARTIAL)
        while not _has_all(blob, file):
            with place.open("a+b") as out:
                fcntl.flock(out, fcntl.LOCK_EX)
                if not is_at(out, place):  # completed or removed during the wait
                    continue
                if _has_all(blob, file):  # completed before `place` was made
                    place.unlink()
                    return
                partial = _Partial(out, file)
                check_room(place.parent, file.size - partial.size, file.name)
                self._complete(partial, progress)
                partial.verify()
                place.rename(blob)

    def _complete(self, partial: "_Partial", progress: Callable[[int], None]) -> None:
        """Download what is missing. A connection that is cut is replaced at once if it has brought anything."""
        progress(partial.size)
        pauses = iter(_PAUSES)
        while partial.size < partial.file.size:
            before = partial.size
            try:
                self._receive(partial, progress)
            except TransientError as error:
                if partial.size > before:
                    pauses = iter(_PAUSES)
                elif (seconds := next(pauses, None)) is not None:
                    self._pause(seconds)
                else:
                    raise
                logger.warning("%s: resuming at byte %d (%s)", partial.file.name, partial.size, error)

    def _receive(self, partial: "_Partial", progress: Callable[[int], None]) -> None:
        with self._client.open(self._repository, self._commit, partial.file.name, partial.size) as reply:
            if reply.status_code != 206:  # noqa: PLR2004 - Partial Content; else the range was ignored
                partial.clear()
            for chunk in reply.iter_bytes():  # as they arrive; chunks of a fixed size lose the last one at a cut
                partial.add(chunk)
                if partial.size > partial.file.size:
                    return  # it may be endless, and is damaged in any case
                progress(partial.size)
        if partial.size < partial.file.size:
            raise TransientError("the connection ended early")


class _Partial:
    """The bytes of a file that are there, and their digest."""

    def __init__(self, out: BinaryIO, file: RemoteFile) -> None:
        self.file = file
        self.size = 0
        self._out = out
        self._digest = _digest(file)
        out.seek(0)
        while chunk := out.read(_CHUNK):
            self._digest.update(chunk)
            self.size += len(chunk)
        if self.size > file.size:
            self.clear()

    def add(self, chunk: bytes) -> None:
        """Append bytes. They are in the file when it returns, so that they outlive the process."""
        self._out.write(chunk)
        self._out.flush()
        self._digest.update(chunk)
        self.size += len(chunk)

    def clear(self) -> None:
        """Drop all bytes."""
        self._out.truncate(0)
        self._digest = _digest(self.file)
        self.size = 0

    def verify(self) -> None:
        """Check size and checksum, and see that the bytes are on the disk.

        Raises:
            HubError: They are wrong. All bytes are dropped.
        """
        size, digest = self.size, self._digest.hexdigest()
        if size != self.file.size or digest != self.file.digest:
            self.clear()
            raise HubError(
                f"{self.file.name} is damaged: the download has {size} bytes with checksum {digest}, and the hub "
                f"names {self.file.size} with {self.file.digest}; the next try begins from the start"
            )
        os.fsync(self._out.fileno())


def _has_all(blob: Path, file: RemoteFile) -> bool:
    return blob.exists() and blob.stat().st_size == file.size


def _digest(file: RemoteFile) -> "hashlib._Hash":
    """Return the digest that the hub uses: SHA-256, or git's for small files."""
    if len(file.digest) == _SHA256_DIGITS:
        return hashlib.sha256()
    return hashlib.sha1(b"blob %d\0" % file.size, usedforsecurity=False)


def check_room(folder: Path, needed: int, name: str) -> None:
    """Raise `HubError` if a folder, which need not exist, has no room for so many bytes more."""
    there = next(place for place in (folder, *folder.parents) if place.exists())
    free = shutil.disk_usage(there).free
    if needed > free:
        raise HubError(
            f"{name} needs {needed / 1e9:.1f} GB more in {folder}, where {free / 1e9:.1f} GB are free; "
            "HF_HOME names another folder"
        )
