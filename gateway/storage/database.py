"""An SQL database that never blocks the event loop, on SQLite or PostgreSQL."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeAlias, TypeVar

from engine.errors import lacks_thread

T = TypeVar("T")
Value: TypeAlias = str | int | float | bytes | list[bytes] | list[str] | list[bool] | None
"""Value of a column. Lists are arrays, which only PostgreSQL has."""
Rows: TypeAlias = list[tuple[Any, ...]]
"""Rows that a statement returned, in order."""


class StorageError(Exception):
    """The database cannot be used. The text is one line for the operator, without passwords."""


@contextmanager
def thread_needed() -> Iterator[None]:
    """Raise `StorageError` where no thread can be started."""
    try:
        yield
    except RuntimeError as error:
        if not lacks_thread(error):
            raise
        raise StorageError(str(error)) from error


class Execute(Protocol):
    """Function that executes one statement."""

    def __call__(self, statement: str, values: Sequence[Value] = ()) -> Rows:
        """Execute a statement in SQL that SQLite and PostgreSQL share. `?` marks the place of a value."""


Work: TypeAlias = Callable[[Execute], T]
"""Work of one transaction. It runs in a worker thread, and ends the transaction by returning or raising."""


class Database(Protocol):
    """A database. Its methods wait for a worker thread and raise `StorageError` if it cannot be used.

    `read` and `write` run one transaction: complete, or without any effect. One object runs one transaction at a time.
    Other objects and other processes may use the same database at the same time.
    """

    async def create(self, statements: Sequence[str]) -> None:
        """Execute statements that create what does not exist yet, also the database itself if it is a file.

        Several processes may create the same at once.
        """

    async def read(self, work: Work[T]) -> T:
        """Run work, and return its result. If it is cancelled, the work may still go on, and store what it changes."""

    async def write(self, work: Work[T]) -> T:
        """Run work, and return its result once its changes are safely stored. Once it runs, it is not interrupted."""

    async def close(self) -> None:
        """Close the connection. A later call opens it again."""


Call: TypeAlias = tuple[str, Sequence[Value]]
"""A statement and its values."""


class Batches(Protocol):
    """A database that executes several statements in one round trip. Its methods are as in `Database`."""

    async def create(self, statements: Sequence[str]) -> None:
        """Execute statements that create what does not exist yet."""

    async def batch(self, calls: Sequence[Call]) -> list[Rows]:
        """Execute statements as one transaction, and return the rows of each. Needs no round trip for each."""

    async def close(self) -> None:
        """Close the connection. A later call opens it again."""
