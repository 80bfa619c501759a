"""Access to the shared database that never lets a request wait without bounds."""

import logging
import time
from collections.abc import Sequence
from http import HTTPStatus
from typing import TypeVar

import anyio

from engine import RequestError
from gateway.middleware.errors import SERVER, Problem, RefusedError, retry_after
from gateway.storage.database import Database, Execute, Rows, StorageError, Value, Work

logger = logging.getLogger(__name__)

T = TypeVar("T")

PATIENCE = 5.0
"""Maximum time that a request waits for the database, in seconds, unless the storage has another one."""
RETRY_INTERVAL = 1.0
"""Seconds after a failure in which nothing is tried."""
UNAVAILABLE = Problem(
    status=HTTPStatus.SERVICE_UNAVAILABLE,
    message="The store of responses and conversations cannot be used now. Try again.",
    type=SERVER,
    code="store_unavailable",
    headers=retry_after(RETRY_INTERVAL),
)
"""Problem of a request while the database cannot be used."""


class Storage:
    """A database whose failures are refusals of requests.

    A failure is not known to have had no effect. So each work is such that its repetition changes nothing.
    """

    def __init__(self, database: Database, patience: float = PATIENCE) -> None:
        """Use a database.

        Args:
            database: the database.
            patience: maximum time that a request waits for it, in seconds.
        """
        self._database = database
        self._patience = patience
        self._failed_at: float | None = None

    async def run(self, work: Work[T]) -> T:
        """Run one transaction, and return its result. Is not interrupted, and takes at most `patience`.

        What has not ended by then has no effect, unless the database is just about to store it.

        Raises:
            RefusedError: 503, the database cannot be used.
        """
        if self._failed_at is not None and time.monotonic() < self._failed_at + RETRY_INTERVAL:
            raise RefusedError(UNAVAILABLE)
        given_up = False
        done: list[T] = []

        def in_time(execute: Execute) -> T:
            def checked(statement: str, values: Sequence[Value] = ()) -> Rows:
                if given_up:
                    raise StorageError("the work took too long")
                return execute(statement, values)

            done[:] = [work(checked)]
            if given_up:
                raise StorageError("the work took too long")
            return done[0]

        try:
            with anyio.fail_after(self._patience, shield=True):
                result = await self._twice(in_time, done)
        except (StorageError, TimeoutError) as failure:
            given_up = True
            self._report_failure(str(failure) or f"there was no answer within {self._patience:g} seconds")
            raise RefusedError(UNAVAILABLE) from failure
        self._report_success()
        return result

    async def _twice(self, work: Work[T], done: Sequence[T]) -> T:
        """Run work again if its first failure may be that of a connection that was lost long ago.

        If the change was made, and only the answer was lost, the second attempt may find nothing to change. `done` has
        the result of the work that has come to its end.
        """
        try:
            return await self._database.read(work)  # `write` would wait for the thread
        except StorageError:
            result = list(done)
        try:
            return await self._database.read(work)
        except (RequestError, RefusedError):
            if result:
                return result[0]
            raise

    async def ready(self) -> None:
        """Return if the database could be used the last time, or can be now. Raises `RefusedError` (503) otherwise."""
        if self._failed_at is not None:
            await self.run(lambda execute: execute("SELECT 1"))

    async def close(self) -> None:
        """Close the connection. Leaves one behind whose database does not answer. Is not interrupted."""
        with anyio.move_on_after(self._patience, shield=True):
            await self._database.close()

    def _report_failure(self, failure: str) -> None:
        if self._failed_at is None:
            logger.error("stored responses and conversations cannot be used: %s", failure)
        self._failed_at = time.monotonic()

    def _report_success(self) -> None:
        if self._failed_at is not None:
            logger.info("stored responses and conversations can be used again")
        self._failed_at = None
