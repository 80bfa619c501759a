"""SQLite in one file. Readers and one writer, in any processes, do not block each other (WAL)."""

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from time import monotonic, sleep
from typing import TypeVar

import anyio
import anyio.to_thread
from typing_extensions import override

from gateway.storage.database import Database, Execute, Rows, StorageError, Value, Work, thread_needed

T = TypeVar("T")

BUSY_TIMEOUT = 5.0
"""Seconds that a transaction waits for the writer of another process."""
BUSY_PAUSE = 0.01
"""Seconds between two attempts where SQLite itself does not wait."""


class SQLiteDatabase(Database):
    """Database in a file. It keeps one connection, which is opened again if the file was replaced."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        self._turn = anyio.CapacityLimiter(1)

    @override
    async def create(self, statements: Sequence[str]) -> None:
        def create() -> None:
            with _reported():
                self._make_file()
                self._log_ahead()
            self._run("IMMEDIATE", lambda execute: [execute(statement) for statement in statements])

        await self._in_thread(create)

    @override
    async def read(self, work: Work[T]) -> T:
        return await self._in_thread(partial(self._run, "DEFERRED", work))

    @override
    async def write(self, work: Work[T]) -> T:
        # A transaction that reads before it writes must be IMMEDIATE, or it could not wait.
        return await self._in_thread(partial(self._run, "IMMEDIATE", work))

    @override
    async def close(self) -> None:
        with suppress(StorageError):  # then the end of the process closes it
            await self._in_thread(self._disconnect)

    async def _in_thread(self, function: Callable[[], T]) -> T:
        """Run a function in a thread, after the end of all earlier ones."""
        with thread_needed():
            return await anyio.to_thread.run_sync(function, limiter=self._turn)

    def _run(self, kind: str, work: Work[T]) -> T:
        with _reported():
            connection = self._connect()
            connection.execute(f"BEGIN {kind}")
            try:
                result = work(_executor(connection))
                connection.execute("COMMIT")
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
            return result

    def _connect(self) -> sqlite3.Connection:
        state = self._path.stat()
        if self._connection is None or (state.st_dev, state.st_ino) != self._file:
            self._disconnect()
            self._connection = sqlite3.connect(
                f"{self._path.absolute().as_uri()}?mode=rw",
                uri=True,
                timeout=BUSY_TIMEOUT,
                isolation_level=None,
                check_same_thread=False,  # `_turn` lets one thread in at a time
            )
            self._file = (state.st_dev, state.st_ino)
        return self._connection

    def _log_ahead(self) -> None:
        """Give the file a write-ahead log. SQLite does not wait if others create the same file now."""
        deadline = monotonic() + BUSY_TIMEOUT
        while True:
            try:
                self._connect().execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or monotonic() > deadline:
                    raise
                sleep(BUSY_PAUSE)
            else:
                return

    def _make_file(self) -> None:
        """Make the file, for its owner alone, if there is none.

        A file that exists must not be opened here: to close it would drop the locks of every connection of this process
        (POSIX), and another process would then delete the log of changes as if it were the last one.
        """
        with suppress(FileExistsError):
            os.close(os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, mode=0o600))

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _executor(connection: sqlite3.Connection) -> Execute:
    def execute(statement: str, values: Sequence[Value] = ()) -> Rows:
        return connection.execute(statement, values).fetchall()

    return execute


@contextmanager
def _reported() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise StorageError(str(error)) from error
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        raise StorageError(f"{place}{error.strerror}") from error
