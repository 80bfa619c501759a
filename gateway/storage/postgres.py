"""PostgreSQL by URL, through psycopg's blocking connection, because its asynchronous one does not run on Trio."""

import select
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TypeVar

import anyio
import anyio.to_thread
import psycopg
from psycopg.conninfo import conninfo_to_dict
from typing_extensions import override

from gateway.storage.database import Batches, Call, Database, Execute, Rows, StorageError, Value, Work, thread_needed

T = TypeVar("T")

CONNECT_TIMEOUT = 5
"""Seconds for a connection to be made, or for one to be given up whose host has vanished."""
STATEMENT_TIMEOUT = 5
"""Seconds for one statement, including its wait for the locks of other transactions."""
ANSWER_TIMEOUT = CONNECT_TIMEOUT + STATEMENT_TIMEOUT
"""Seconds for a transaction. A server that is stuck, or whose disk is, does not end statements itself."""
CLOSE_TIMEOUT = 1.0
"""Seconds for the closing of the connection, after which the end of the process closes it."""
POLL_INTERVAL = 0.05
"""Seconds between two looks for the end of a thread that was abandoned."""
CREATION_LOCK = 0x6C6C616D61
"""Key of the lock under which tables are created: `CREATE … IF NOT EXISTS` fails if two run at once."""


def check_url(url: str) -> None:
    """Check the form of a URL.

    Raises:
        ValueError: it is not valid. The text does not repeat it, because it may have a password.
    """
    try:
        conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        raise ValueError("this is not a valid URL of a PostgreSQL database") from None


class PostgresDatabase(Database, Batches):
    """Database on a server. It keeps one connection, and makes a new one after a failure."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: psycopg.Connection | None = None
        self._turn = anyio.Lock()
        self._in_use = threading.Lock()

    @override
    async def create(self, statements: Sequence[str]) -> None:
        await self._in_thread(partial(self._create, statements))

    @override
    async def read(self, work: Work[T]) -> T:
        return await self._in_thread(partial(self._run, work), abandon=True)

    @override
    async def write(self, work: Work[T]) -> T:
        return await self._in_thread(partial(self._run, work))

    @override
    async def batch(self, calls: Sequence[Call]) -> list[Rows]:
        return await self._in_thread(partial(self._batch, calls))

    @override
    async def close(self) -> None:
        with suppress(StorageError), anyio.move_on_after(CLOSE_TIMEOUT):
            await self._in_thread(self._disconnect, abandon=True)

    async def _in_thread(self, function: Callable[[], T], *, abandon: bool = False) -> T:
        """Run a function in a thread, after the end of all earlier ones, those that were abandoned included.

        The thread is abandoned after `ANSWER_TIMEOUT`, or, if `abandon` is set, when the caller is cancelled.
        """
        try:
            async with self._turn:
                with anyio.fail_after(ANSWER_TIMEOUT):
                    while self._in_use.locked():  # noqa: ASYNC110 - a thread that was abandoned notifies no event loop
                        await anyio.sleep(POLL_INTERVAL)
                with thread_needed(), anyio.fail_after(ANSWER_TIMEOUT, shield=not abandon):
                    return await anyio.to_thread.run_sync(self._alone, function, abandon_on_cancel=True)
        except TimeoutError as error:
            raise StorageError(f"there was no answer within {ANSWER_TIMEOUT:g} seconds") from error

    def _alone(self, function: Callable[[], T]) -> T:
        with self._in_use:
            return function()

    def _create(self, statements: Sequence[str]) -> None:
        """Execute each statement in a transaction of its own: together, their locks could deadlock with changes."""
        with self._reported():
            execute = _executor(self._connect())
            execute("SELECT pg_advisory_lock(?)", (CREATION_LOCK,))
            for statement in statements:
                execute(statement)
            execute("SELECT pg_advisory_unlock(?)", (CREATION_LOCK,))

    def _run(self, work: Work[T]) -> T:
        with self._reported():
            connection = self._connect()
            with connection.transaction():
                return work(_executor(connection))

    def _batch(self, calls: Sequence[Call]) -> list[Rows]:
        """Execute all in a pipeline, which without BEGIN is one transaction."""
        with self._reported():
            connection = self._connect()
            with connection.pipeline():
                cursors = [connection.execute(_in_psycopg(statement), values) for statement, values in calls]
            return [_rows(cursor) for cursor in cursors]

    def _connect(self) -> psycopg.Connection:
        if self._connection is not None and _has_ended(self._connection):
            self._disconnect()
        if self._connection is None:
            self._connection = psycopg.connect(
                self._url,
                autocommit=True,
                connect_timeout=CONNECT_TIMEOUT,
                application_name="llama-gateway",
                tcp_user_timeout=1000 * CONNECT_TIMEOUT,  # in milliseconds
                keepalives_idle=CONNECT_TIMEOUT,
                keepalives_interval=1,  # the system's is 75, and the timeout above is only seen at a probe
            )
            self._connection.execute(f"SET statement_timeout = '{STATEMENT_TIMEOUT}s'")
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            with suppress(psycopg.Error):
                self._connection.close()
            self._connection = None

    @contextmanager
    def _reported(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            self._disconnect()  # which also releases all locks
            raise StorageError(self._reason(error)) from error

    def _reason(self, error: psycopg.Error) -> str:
        """Return the first line of an error, without the password."""
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        password = conninfo_to_dict(self._url).get("password")
        return reason.replace(str(password), "…") if password else reason


def _has_ended(connection: psycopg.Connection) -> bool:
    """Return True if the server has ended a connection that no one used, or has sent something else over it.

    Without this look, the first transaction after a restart of the server would fail.
    """
    poll = select.poll()  # unlike `select`, it takes any descriptor
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def _executor(connection: psycopg.Connection) -> Execute:
    def execute(statement: str, values: Sequence[Value] = ()) -> Rows:
        return _rows(connection.execute(_in_psycopg(statement), values))

    return execute


def _in_psycopg(statement: str) -> bytes:
    return statement.replace("?", "%s").encode()


def _rows(cursor: psycopg.Cursor) -> Rows:
    return cursor.fetchall() if cursor.description else []
