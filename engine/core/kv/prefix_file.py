"""Prefixes in files: their names, the changes that write and read them, and the reports of these."""

from array import array
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Protocol, TypeAlias

from engine.core.kv.prefix import Prefix


@dataclass(frozen=True, slots=True, eq=False)
class PrefixFile:
    """A prefix with its cells in a file."""

    name: str
    """The name of the file: a hash of its prefix. Equal prefixes of all engines have equal names."""
    prefix: Prefix
    """Its tokens."""
    bytes: int
    """Size of its cells; an estimate until they are written."""
    partial: bool = False
    """True for a checkpoint, as in `StoredPrefix`."""

    @property
    def size(self) -> int:
        """Number of tokens."""
        return self.prefix.size


@dataclass(frozen=True, slots=True)
class Spill:
    """Write saved cells to a file, in the background."""

    file: PrefixFile
    """The file to write."""
    key: int
    """The key of the cells; without effect if they could not be saved."""


@dataclass(frozen=True, slots=True)
class SpillSlot:
    """Write the cells of a slot to a file: copy them at once, and write them in the background."""

    file: PrefixFile
    """The file to write."""
    seq_id: int
    """The slot."""


@dataclass(frozen=True, slots=True)
class Fetch:
    """Read a file into host memory, in the background. No change uses the key before its `FileRead`."""

    file: PrefixFile
    """The file to read."""
    key: int
    """A new key for its cells. `Forget` ends the read."""


@dataclass(frozen=True, slots=True)
class Discard:
    """Delete a file, in the background."""

    name: str
    """The name of the file."""


@dataclass(frozen=True, slots=True)
class FileWritten:
    """A file was written, or was there already."""

    file: PrefixFile
    """The file."""
    removed: tuple[str, ...] = ()
    """Names of the files that were removed, so that there was room for it."""


@dataclass(frozen=True, slots=True)
class FileRead:
    """A read has ended."""

    key: int
    """The key of the cells."""
    found: bool
    """True if they are in host memory. If not, `FileGone` follows."""
    bytes: int = 0
    """Number of bytes read."""
    seconds: float = 0.0
    """Duration of the read."""


@dataclass(frozen=True, slots=True)
class FileGone:
    """A file could not be written or read, or was deleted."""

    name: str
    """The name of the file."""


FileChange: TypeAlias = Spill | SpillSlot | Fetch | Discard
FileReport: TypeAlias = FileWritten | FileRead | FileGone


class FileService(Protocol):
    """Reads and writes files in threads of its own, as a runner asks it."""

    def start(self, report: Callable[[FileReport], None]) -> None:
        """Report the files that there are, by a function for any thread. From now on, files are read and written."""

    def flush(self, seconds: float) -> None:
        """Wait until everything is written, but no longer than so many seconds."""


def file_for(prefix: Prefix, size: int, *, partial: bool = False) -> PrefixFile:
    """Return the file of a prefix of so many bytes. It is no longer than the prefix, whatever follows in the list."""
    own = Prefix(prefix.tokens[: prefix.size], prefix.size, prefix.partition)
    digest = blake2b(
        array("i", own.tokens).tobytes(), digest_size=20, key=blake2b(str(own.partition).encode()).digest()
    )
    return PrefixFile(f"{digest.hexdigest()}{'.checkpoint' if partial else '.prefix'}", own, size, partial)
