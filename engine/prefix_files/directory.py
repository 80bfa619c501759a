"""A directory of prefix files, which several engines and models may share."""

import logging
import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from io import BufferedReader
from itertools import count
from pathlib import Path

from engine.core.kv.prefix_file import PrefixFile
from engine.prefix_files import format as prefix_format
from engine.prefix_files.format import DamagedError, Header, State

logger = logging.getLogger(__name__)

_UNFINISHED = ".unfinished"
_NAME = re.compile(rf"[0-9a-f]{{40}}\.(prefix|checkpoint)(-\d+-\d+\{_UNFINISHED})?")
"""Names of prefix files: see `file_for`. The directory may be one with other files, which must not be removed."""
_ABANDONED = 3600.0
"""Seconds after which an unfinished file is one of an engine that was killed."""
_AHEAD = 3600.0
"""Seconds by which the time of a file may be ahead of the clock. One further ahead is of a clock that was wrong."""


class PrefixDirectory:
    """Reads and writes the files of one model, each in one subdirectory by its fingerprint.

    A file is complete, because it is written under another name first. It is not flushed to the disk: what a loss of
    power leaves of it fails the checksum. The budget holds for the files of all models together, so that those of a
    model that is served no longer go in the end. Files that are no prefix files are left alone.
    """

    def __init__(self, root: Path, fingerprint: bytes, budget: int) -> None:
        """Create no directory yet.

        Args:
            root: the directory of all models.
            fingerprint: what the cells depend on besides their tokens.
            budget: maximum number of bytes of all files.
        """
        self._root = root
        self._fingerprint = fingerprint
        self._own = root / fingerprint.hex()[:32]
        self._budget = budget
        self._numbers = count()

    def scan(self) -> Iterator[PrefixFile]:
        """Create the directory and yield its files, the least recently used first. Only headers are read.

        Damaged files are removed.

        Raises:
            OSError: the directory cannot be created or read.
        """
        self._own.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in _by_use(self._own):
            try:
                with self._open(path) as source:
                    header = prefix_format.read_header(source, self._fingerprint, path.name)
                    _check_size(source, header)
            except DamagedError as error:
                self._remove_damaged(path, error)
            except FileNotFoundError:
                continue
            except OSError as error:  # perhaps another user's
                logger.warning("a prefix file is ignored: %s", error, extra={"file": str(path)})
            else:
                yield header.file

    def write(self, file: PrefixFile, state: State) -> tuple[PrefixFile, list[str]]:
        """Write a file. Return it with its exact size, and the names of those of this model that were removed for it.

        Raises:
            OSError: the disk is full, cannot be written or fails.
        """
        removed = self._make_room(state.nbytes)
        self._own.mkdir(mode=0o700, parents=True, exist_ok=True)
        unfinished = self._own / f"{file.name}-{os.getpid()}-{next(self._numbers)}{_UNFINISHED}"
        try:
            with open(unfinished, "xb", opener=_private) as target:
                prefix_format.write(target, self._fingerprint, file, state)
            unfinished.replace(self._own / file.name)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise
        return replace(file, bytes=state.nbytes), removed

    def read(self, file: PrefixFile) -> State:
        """Read the state of a file, and make it the last to be removed. A damaged file is removed.

        Raises:
            DamagedError: the file is damaged.
            OSError: there is no such file any more, or the disk fails.
        """
        path = self._own / file.name
        try:
            with self._open(path) as source:
                header = prefix_format.read_header(source, self._fingerprint, file.name)
                _check_same(header, file)
                state = prefix_format.read_state(source, header)
        except DamagedError as error:
            self._remove_damaged(path, error)
            raise
        with suppress(OSError):
            os.utime(path)
        return state

    def delete(self, name: str) -> None:
        """Delete a file, if it is there.

        Raises:
            OSError: it cannot be deleted.
        """
        (self._own / name).unlink(missing_ok=True)

    def _open(self, path: Path) -> BufferedReader:
        source = open(path, "rb", opener=_without_links)  # noqa: SIM115  # the caller closes it
        if os.fstat(source.fileno()).st_uid != os.geteuid():
            source.close()
            raise DamagedError("it belongs to another user")
        return source

    def _make_room(self, needed: int) -> list[str]:
        """Remove the least recently used files of all models until there is room. Return the names of own ones.

        Raises:
            OSError: the file is larger than the budget.
        """
        if needed > self._budget:
            raise OSError(f"{needed} bytes are more than the directory may hold")
        files = _by_use(*self._root.iterdir()) if self._root.exists() else {}
        used, removed = sum(files.values()), []
        for path, size in files.items():
            if used + needed <= self._budget:
                break
            path.unlink(missing_ok=True)
            used -= size
            if path.parent == self._own:
                removed.append(path.name)
        return removed

    def _remove_damaged(self, path: Path, error: DamagedError) -> None:
        logger.warning("a prefix file is ignored and removed: %s", error, extra={"file": str(path)})
        with suppress(OSError):
            path.unlink()


def _by_use(*folders: Path) -> dict[Path, int]:
    """Return the sizes of all prefix files of these folders, the least recently used first. Remove abandoned ones.

    Files of times to come are the first ones, because they would outlive all others until then.
    """
    found: list[tuple[float, Path, int]] = []
    now = time.time()
    files = (path for folder in folders if folder.is_dir() for path in folder.iterdir() if _NAME.fullmatch(path.name))
    for path in files:
        with suppress(FileNotFoundError):
            status = path.lstat()
            used = status.st_mtime if status.st_mtime < now + _AHEAD else 0.0
            if path.suffix != _UNFINISHED:
                found.append((used, path, status.st_size))
            elif used < now - _ABANDONED:
                path.unlink()
    return {path: size for _, path, size in sorted(found)}


def _check_size(source: BufferedReader, header: Header) -> None:
    if os.fstat(source.fileno()).st_size != source.tell() + header.file.bytes:
        raise DamagedError("its size is wrong")


def _check_same(header: Header, file: PrefixFile) -> None:
    if header.file.prefix != file.prefix or header.file.partial != file.partial:
        raise DamagedError("it holds another prefix than its name says")


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def _without_links(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW)
