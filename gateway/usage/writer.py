"""Writer of usage rows: requests end without a wait, and a task stores their rows in batches."""

import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from engine.notifier import Notifier
from gateway.serving.records import RequestRecord
from gateway.storage.database import StorageError
from gateway.usage.buffer import UsageBuffer
from gateway.usage.store import UsageStore

logger = logging.getLogger(__name__)

BATCH = 256
"""Rows of one transaction. So many rows are stored at once, without waiting for the interval."""
INTERVAL = 1.0
"""Seconds between two transactions. A process that is killed loses the rows of this time, fewer than `BATCH`."""
RETRY_INTERVAL = 1.0
"""Seconds between two attempts while the store fails."""
CAPACITY = 16_384
"""Rows that wait for a disk that is full or slow. Further ones are summed."""
PATIENCE = 2.0
"""Seconds that the end of a response waits at most, where it waits until its row is stored."""


class UsageWriter:
    """Observer that stores a row for each request that used the engine."""

    def __init__(
        self,
        store: UsageStore,
        *,
        capacity: int = CAPACITY,
        interval: float = INTERVAL,
    ) -> None:
        """Create a writer.

        Args:
            store: keeps the rows.
            capacity: rows that wait before further ones are summed.
            interval: seconds between two transactions.
        """
        self.store = store
        """Keeps the rows."""
        self._buffer = UsageBuffer(capacity)
        self._interval = interval
        self._added = anyio.Event()
        self._full = anyio.Event()
        self._tried = Notifier()
        self._failing = False

    @property
    def waiting(self) -> int:
        """Number of rows that are not stored yet."""
        return len(self._buffer)

    def observe(self, record: RequestRecord) -> None:
        """Take the row of a request that has ended. See `RecordObserver`."""
        if record.outcome is None:
            return
        self._buffer.add(record, time.time())
        self._added.set()
        if len(self._buffer) >= BATCH:
            self._full.set()

    async def stored(self) -> None:
        """Wait until all rows that wait now are stored, at most `PATIENCE`, and not while the store fails."""
        last = self._buffer.last
        with anyio.move_on_after(PATIENCE):
            while last is not None and self._buffer.holds(last) and not self._failing:
                self._full.set()
                await self._tried.wait()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Store rows inside the context. Leaving it stores all that wait; requests must have ended before."""
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._run)
                yield
                tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await self._finish()

    async def _run(self) -> None:
        while True:
            await self._added.wait()
            with anyio.move_on_after(self._interval):
                await self._full.wait()
            self._added, self._full = anyio.Event(), anyio.Event()
            if not await self._flush():
                await anyio.sleep(RETRY_INTERVAL)
                self._added.set()

    async def _flush(self) -> bool:
        """Store all rows that wait. Returns False if the store failed; the rest waits then."""
        while rows := self._buffer.first(BATCH):
            try:
                await self.store.add(rows)
            except StorageError as error:
                self._report_failure(error)
                return False
            else:
                self._buffer.drop(rows)
                self._report_success()
            finally:
                self._tried.notify()
        return True

    async def _finish(self) -> None:
        if not await self._flush():
            logger.error("lost the usage of %d requests: %d tokens", self._buffer.requests, self._buffer.tokens)
        await self.store.close()

    def _report_failure(self, error: StorageError) -> None:
        if not self._failing:
            logger.error("cannot store the usage of requests, which waits in memory: %s", error)
        self._failing = True

    def _report_success(self) -> None:
        if self._failing:
            logger.info("the usage of requests is stored again")
        self._failing = False
