"""Queue of changes to shared ledgers: a task sends them to the database in order, many in one round trip."""

import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import count

import anyio

from gateway.limits import shared_schema
from gateway.storage.database import Batches, Call, Rows, StorageError

logger = logging.getLogger(__name__)

BATCH = 64
"""Changes of one round trip."""
CAPACITY = 16_384
"""Changes that wait for a database that is down or slow, before requests of keys without limits are not counted."""
PATIENCE = 2.0
"""Maximum time that a request waits for its admission, and the end of its response for the charge, in seconds."""
RETRY_INTERVAL = 1.0
"""Seconds between two attempts while the database cannot be used."""
MICROSECONDS = 10**6
"""Microseconds of a second."""
LEASE = 10.0
"""Seconds after which the requests of a gateway that died are ended for it."""


class LedgersUnavailableError(Exception):
    """The database did not answer in time."""


@dataclass(eq=False, slots=True)
class Change:
    """A change to the ledger of one key."""

    key_id: str
    """Id of the key."""
    reservation: str
    """Id of the reservation that it makes, changes or ends."""
    call: Call
    """Statement that makes it. A repetition has no effect."""
    done: Callable[[Rows], None]
    """Called with the rows of the statement."""
    begins: bool = False
    """True if it makes the reservation."""
    must_wait: bool = False
    """True if a request waits for it (`LedgerQueue.make`), and is refused if it fails."""
    ended: anyio.Event = field(default_factory=anyio.Event)
    """Set once it is made, or has failed."""
    made: bool = False
    """True once it is made."""


class LedgerQueue:
    """Changes to shared ledgers. They are made in their order, and again if it is unknown whether they were made.

    A change that ends a reservation is not in one batch with the change that made it. So a repeated batch meets
    each reservation as it left it, open or ended, and counts nothing twice.
    """

    def __init__(self, database: Batches, gateway: str, lease: float = LEASE) -> None:
        """Create an empty queue.

        Args:
            database: has the ledgers.
            gateway: name of this gateway in the reservations.
            lease: seconds for which reservations are kept without a renewal.
        """
        self._database = database
        self._gateway = gateway
        self._lease = lease
        self._changes: dict[int, Change] = {}
        self._numbers = count()
        self._added = anyio.Event()
        self._failing = False

    @property
    def full(self) -> bool:
        """True if so many changes wait that those without need should be left out."""
        return len(self._changes) >= CAPACITY

    def add(self, change: Change) -> int:
        """Make a change later. Returns its number in the queue."""
        number = next(self._numbers)
        self._changes[number] = change
        self._added.set()
        return number

    async def make(self, change: Change, undo: Callable[[], None]) -> None:
        """Make a change, and wait until it is made.

        Args:
            change: the change.
            undo: undoes it. Called if its request cannot use the change once it was added: it may have been made.

        Raises:
            LedgersUnavailableError: the database cannot be used. The change will not be made later.
        """
        if self._failing:
            raise LedgersUnavailableError
        change.must_wait = True
        number, answered = self.add(change), False
        try:
            with anyio.move_on_after(PATIENCE):
                await change.ended.wait()
            answered = change.made
        finally:
            self._changes.pop(number, None)
            if not answered:
                undo()  # also if the request was cancelled together with its answer
        if not answered:
            raise LedgersUnavailableError

    async def emptied(self) -> None:
        """Wait until all changes are made for which no request waits: at most `PATIENCE`, and not during a failure."""
        changes = reversed(self._changes.values())
        last = next((change for change in changes if not change.must_wait), None)  # the others may be given up
        if last is not None and not self._failing:
            with anyio.move_on_after(PATIENCE):
                await last.ended.wait()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Make changes inside the context. Leaving it makes all that wait."""
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._run)
                tasks.start_soon(self._renew)
                yield
                tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                if not await self._flush() and self._changes:
                    logger.error("%d changes of the limits of keys are lost", len(self._changes))
                await self._database.close()

    async def _run(self) -> None:
        while True:
            await self._added.wait()
            self._added = anyio.Event()
            if not await self._flush():
                await anyio.sleep(RETRY_INTERVAL)
                self._added.set()

    async def _renew(self) -> None:
        """Renew the leases of this gateway, in transactions of their own: they touch the rows of many keys."""
        lease = round(self._lease * MICROSECONDS)
        while True:
            await anyio.sleep(self._lease / 3)
            try:
                await self._database.batch([(shared_schema.RENEW, (None, lease, self._gateway))])
            except StorageError as error:
                self._report_failure(error)
                self._added.set()

    async def _flush(self) -> bool:
        """Make all changes. Returns False if the database failed; those for which no request waits are kept then."""
        while self._changes or self._failing:
            batch = self._batch()
            try:
                answers = await self._send([change.call for _, change in batch] or [shared_schema.PROBE])
            except StorageError as error:
                self._report_failure(error)
                self._refuse_waiting()
                return False
            self._report_success()
            for (number, change), rows in zip(batch, answers, strict=False):
                self._changes.pop(number, None)
                change.made = True
                change.done(rows)
                change.ended.set()
        return True

    async def _send(self, calls: Sequence[Call]) -> list[Rows]:
        """Send a batch, twice if the first failure may be that of a connection that was lost long ago."""
        if not self._failing:
            with suppress(StorageError):
                return await self._database.batch(calls)
        return await self._database.batch(calls)

    def _batch(self) -> Sequence[tuple[int, Change]]:
        """Return the next changes, in the order of their keys, in which all gateways lock them."""
        batch: list[tuple[int, Change]] = []
        begun: set[str] = set()
        for number, change in self._changes.items():
            if len(batch) == BATCH or change.reservation in begun:
                break
            if change.begins:
                begun.add(change.reservation)
            batch.append((number, change))
        return sorted(batch, key=lambda numbered: numbered[1].key_id)

    def _refuse_waiting(self) -> None:
        for number, change in list(self._changes.items()):
            if change.must_wait:
                del self._changes[number]
                change.ended.set()

    def _report_failure(self, error: StorageError) -> None:
        if not self._failing:
            logger.error("requests of keys with limits are refused, because the limits cannot be read: %s", error)
        self._failing = True

    def _report_success(self) -> None:
        if self._failing:
            logger.info("the limits of keys can be read again")
        self._failing = False
