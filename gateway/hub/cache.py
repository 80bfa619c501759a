"""The hub's files on this machine, in the folders that all programs of the hub share.

A repository's folder has `blobs/DIGEST` (contents), `snapshots/COMMIT/NAME` (links to them) and `refs/main` (a commit).
"""

import fcntl
import logging
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from uuid import uuid4

from engine.gguf.split_file import parts_of
from gateway.hub.choice import choose, is_model, quant_of
from gateway.hub.errors import HubError
from gateway.hub.reference import HubReference

logger = logging.getLogger(__name__)

PARTIAL = ".incomplete"
"""End of the name of a blob that is not complete."""


@dataclass(frozen=True, slots=True)
class CachedModel:
    """A complete model on this machine."""

    repository: str
    """Name of the repository."""
    name: str
    """Path of its file in the repository, or of its first part."""
    path: Path
    """Path of this file on this machine."""
    size: int
    """Bytes of all parts."""

    @property
    def reference(self) -> str:
        """Name of the model for the operator."""
        quant = quant_of(self.name)
        return f"hf:{self.repository}:{quant}" if quant else f"hf:{self.repository}/{self.name}"


class HubCache:
    """Files of the hub on this machine."""

    def __init__(self, root: Path) -> None:
        """Use a folder, which need not exist."""
        self.root = root

    def blob(self, repository: str, digest: str) -> Path:
        """Return the place of a content, whether it is there or not."""
        return self.folder(repository) / "blobs" / digest

    def size_of(self, repository: str, digest: str) -> int:
        """Return the bytes of a content that are here, also of one that is not complete."""
        blob = self.blob(repository, digest)
        for place in (blob, blob.with_name(blob.name + PARTIAL), blob):  # another program may complete it meanwhile
            with suppress(FileNotFoundError):
                return place.stat().st_size
        return 0

    def find(self, reference: HubReference) -> Path | None:
        """Return the path of a model that is complete, or of its first part; None if there is none."""
        for files in self.snapshots(reference.repository):
            with suppress(HubError):
                return files[choose(files, reference)[0]]
        return None

    def link(self, repository: str, commit: str, name: str, digest: str) -> Path:
        """Link a content under its name in a commit, and return the link. The commit becomes that of `main`."""
        folder = self.folder(repository)
        link = folder / "snapshots" / commit / name
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.exists():
            link.unlink(missing_ok=True)  # it leads nowhere
            target = self.blob(repository, digest).relative_to(folder)
            up = Path(*[".."] * (len(link.parent.relative_to(folder).parts)))
            with suppress(FileExistsError):  # another program has just made it
                link.symlink_to(up / target)
        main = folder / "refs" / "main"
        main.parent.mkdir(exist_ok=True)
        new = main.with_name(f"main.{uuid4().hex}.tmp")  # other programs may read or write it at the same time
        try:
            new.write_text(commit)
            new.replace(main)
        finally:
            new.unlink(missing_ok=True)  # on a full disk
        return link

    def snapshots(self, repository: str) -> list[dict[str, Path]]:
        """Return the GGUF files of each commit by their names, first those of `main`, then of the newest commit.

        A folder that may not be read, such as another user's, has none.
        """
        folder = self.folder(repository)
        try:
            return _snapshots(folder)
        except PermissionError as error:
            logger.warning("%s cannot be read: %s", folder, error.strerror)
            return []

    def models(self) -> Iterator[CachedModel]:
        """Yield every complete model once, sorted by repository and name."""
        for folder in sorted(self.root.glob("models--*--*")):
            repository = repository_of(folder)
            newest: dict[str, CachedModel] = {}
            for files in self.snapshots(repository):
                for name in files:
                    if name not in newest and is_model(name) and all(part in files for part in parts_of(name)):
                        size = sum(files[part].stat().st_size for part in parts_of(name))
                        newest[name] = CachedModel(repository, name, files[name], size)
            yield from sorted(newest.values(), key=lambda model: model.name)

    def partials(self) -> Iterator[tuple[str, Path]]:
        """Yield every download that is not complete, with its repository."""
        for path in sorted(self.root.glob(f"models--*--*/blobs/*{PARTIAL}")):
            yield repository_of(path.parents[1]), path

    def remove(self, repository: str, names: Iterable[str]) -> int:
        """Remove files of a repository from all commits, with the contents that no other file has.

        Returns:
            The bytes of the removed contents.
        """
        doomed = set(names)
        links = [path for files in self.snapshots(repository) for name, path in files.items() if name in doomed]
        copies = [path for path in links if not path.is_symlink()]  # made where the file system has no links
        freed = sum(path.stat().st_size for path in copies)
        contents = {_content(link) for link in links}.difference(copies)
        for link in links:
            link.unlink()
        return freed + self._remove_contents(repository, contents)

    def remove_partials(self, repository: str) -> int:
        """Remove the downloads of a repository that are not complete, and return their bytes.

        Those that run now stay: another process would otherwise begin in the place of one that goes on.
        """
        partials = (self.folder(repository) / "blobs").glob(f"*{PARTIAL}")
        with ExitStack() as locks:
            return self._remove_contents(repository, {path for path in partials if _lock(path, locks)})

    def _remove_contents(self, repository: str, contents: set[Path]) -> int:
        """Remove contents that have no link any more, and the repository's folder once it has no file.

        A file outside of the folder that someone has linked stays.
        """
        folder = self.folder(repository)
        left = {_content(path) for path in (folder / "snapshots").rglob("*") if path.is_file()}
        freed = 0
        for content in (one for one in contents - left if one.is_relative_to(folder)):
            freed += content.stat().st_size
            content.unlink()
        if not left and not any((folder / "blobs").glob(f"*{PARTIAL}")):
            shutil.rmtree(folder, ignore_errors=True)
        return freed

    def folder(self, repository: str) -> Path:
        """Return the folder of a repository, whether it is there or not."""
        return self.root / f"models--{repository.replace('/', '--')}"


def repository_of(folder: Path) -> str:
    """Return the name of the repository that has a folder: see `HubCache.folder`."""
    return folder.name.removeprefix("models--").replace("--", "/", 1)


def _snapshots(folder: Path) -> list[dict[str, Path]]:
    main = folder / "refs" / "main"
    latest = main.read_text().strip() if main.is_file() else None
    commits = sorted(
        (folder / "snapshots").glob("*"),
        key=lambda commit: (commit.name == latest, commit.stat().st_mtime),
        reverse=True,
    )
    return [
        {str(path.relative_to(commit)): path for path in sorted(commit.rglob("*.gguf")) if path.is_file()}
        for commit in commits
    ]


def is_at(file: IO[bytes], path: Path) -> bool:
    """Return whether an open file is the one at a path."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    return False


def _lock(partial: Path, locks: ExitStack) -> bool:
    """Lock a download that is not complete until the stack is closed.

    Returns False if it runs, has just ended, or may not be written.
    """
    try:
        file = locks.enter_context(partial.open("r+b"))  # NFS locks only files that are open for writing
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (FileNotFoundError, PermissionError, BlockingIOError):
        return False
    return is_at(file, partial)


def _content(link: Path) -> Path:
    """Return what a name of a snapshot links to. That may be a link, too: to a content that repositories share."""
    return Path(os.path.normpath(link.parent / link.readlink())) if link.is_symlink() else link
