"""Limits of all keys, counted for all gateways that share a PostgreSQL database."""

import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import astuple, dataclass, field
from functools import partial
from http import HTTPStatus

from typing_extensions import override

from gateway.keys.key import Key
from gateway.limits import shared_schema
from gateway.limits.bucket import Bucket
from gateway.limits.ledger_queue import (
    LEASE,
    MICROSECONDS,
    RETRY_INTERVAL,
    Change,
    LedgerQueue,
    LedgersUnavailableError,
)
from gateway.limits.limiter import NO_LIMITS, Charged, Correct, Limiter, charge_of, charged_in
from gateway.limits.moment import NANOSECONDS, Moment
from gateway.limits.refusals import budget_exceeded, concurrency_exceeded, rate_exceeded
from gateway.middleware.errors import SERVER, Problem, RefusedError, retry_after
from gateway.serving.records import RequestRecord
from gateway.storage.database import Batches, Rows, Value

UNAVAILABLE = Problem(
    status=HTTPStatus.SERVICE_UNAVAILABLE,
    message="The limits of the API key cannot be read now, so the request is not admitted. Try again.",
    type=SERVER,
    code="limits_unavailable",
    headers=retry_after(RETRY_INTERVAL),
)
"""Problem of a request of a key with limits while the database cannot be used."""
LARGEST = 2**53
"""Largest number of tokens that is stored. No limit is as large."""


@dataclass(frozen=True, slots=True)
class SharedRates:
    """Use of a key's limits per minute as the database last said it. Between its answers only time changes it."""

    requests: Bucket = field(default_factory=Bucket)
    """Requests of the last minute."""
    tokens: Bucket = field(default_factory=Bucket)
    """Tokens of the last minute."""


class SharedLimiter(Limiter):
    """Limits that are counted in PostgreSQL.

    Only the admission of a request of a key with limits waits for the database, for one round trip and at most
    `PATIENCE`. All else is queued. While the database cannot be used, requests of keys with limits are refused (503),
    others go on.
    """

    def __init__(
        self,
        database: Batches,
        *,
        clock: Callable[[], Moment] = Moment.now,
        time: Callable[[], int | None] = lambda: None,
        lease: float = LEASE,
    ) -> None:
        """Create a limiter on ledgers that `create` has created.

        Args:
            database: has the ledgers, for this limiter alone: a wait for other work would be a wait of requests.
            clock: returns the present of this process, for headers and for the periods to restore.
            time: returns the time of the ledgers in microseconds since 1970; None takes the database's clock.
            lease: seconds after which the requests of a gateway that died are ended for it.
        """
        self._database = database
        self.clock = clock
        self._time = time
        self._lease = lease
        self._gateway = secrets.token_hex(8)
        self._queue = LedgerQueue(database, self._gateway, lease)
        self._rates: dict[str, SharedRates] = {}

    async def create(self) -> None:
        """Create what does not exist yet.

        Raises:
            StorageError: the database cannot be used.
        """
        await self._database.create(shared_schema.SCHEMA)

    @asynccontextmanager
    @override
    async def admitted(self, record: RequestRecord, bound: int) -> AsyncIterator[Correct]:
        key = record.caller.key
        if key is None or (key.limits == NO_LIMITS and self._queue.full):
            yield lambda _bound: None
            return
        await self._admit(key, record.id, min(bound, LARGEST))
        try:
            yield partial(self._correct, key, record.id)
        finally:
            self._settle(key, record.id, charge_of(record))

    @override
    def rates(self, key_id: str) -> SharedRates:
        return self._rates.setdefault(key_id, SharedRates())

    @override
    async def restore(self, charged: Charged) -> None:
        """Charge what the keys used before the limits were shared. Keys that have a ledger are left out."""
        of_day, of_month = await charged_in(charged, self.clock().time)
        for key_id in sorted(of_month.keys() - {""}):  # that of requests without a key
            values = (key_id, of_day[key_id], of_month[key_id], self._time())
            await self._database.batch([(shared_schema.RESTORE, values)])

    @override
    async def settled(self) -> None:
        await self._queue.emptied()

    @asynccontextmanager
    @override
    async def open(self) -> AsyncIterator[None]:
        async with self._queue.open():
            yield

    async def _admit(self, key: Key, reservation: str, bound: int) -> None:
        """Admit a request. Raises `RefusedError`."""
        answers: Rows = []
        lease = round(self._lease * MICROSECONDS)
        values = (key.id, reservation, self._gateway, bound, *astuple(key.limits), lease, self._time())
        change = Change(key.id, reservation, (shared_schema.ADMIT, values), answers.extend, begins=True)
        if key.limits == NO_LIMITS:
            self._queue.add(change)
            return
        try:
            await self._queue.make(change, undo=partial(self._settle, key, reservation, 0))
        except LedgersUnavailableError:
            raise RefusedError(UNAVAILABLE) from None
        self._conclude(key, bound, *answers[0])

    def _conclude(self, key: Key, bound: int, refused: str | None, remaining: int, wait: int, *levels: object) -> None:
        """Keep the levels of an admission for the headers. Raises `RefusedError` if a limit refused it."""
        limits, rates = key.limits, self.rates(key.id)
        for bucket, level in zip((rates.requests, rates.tokens), levels, strict=True):
            self._show(bucket, level)
        if refused is None:
            return
        limit = int(getattr(limits, refused))
        if refused == "concurrent_requests":
            raise concurrency_exceeded(limit)
        if refused.endswith("_per_minute"):
            raise rate_exceeded(refused, limit, wait * (NANOSECONDS // MICROSECONDS))
        raise budget_exceeded(refused, limit, remaining, bound, wait / MICROSECONDS)

    def _correct(self, key: Key, reservation: str, bound: int) -> None:
        limits = key.limits
        values = (min(bound, LARGEST), limits.tokens_per_minute, limits.tokens_per_day, limits.tokens_per_month)
        self._change(key, reservation, shared_schema.CORRECT, *values)

    def _settle(self, key: Key, reservation: str, charge: int) -> None:
        self._change(key, reservation, shared_schema.SETTLE, charge, key.limits.tokens_per_minute)

    def _change(self, key: Key, reservation: str, statement: str, *values: Value) -> None:
        """Queue a change, whose answer is the use of the rate of tokens."""

        def show(rows: Rows) -> None:
            if key.limits.tokens_per_minute is not None:
                self._show(self.rates(key.id).tokens, rows[0][0])

        call = statement, (key.id, reservation, self._gateway, *values, self._time())
        self._queue.add(Change(key.id, reservation, call, show))

    def _show(self, bucket: Bucket, level: object) -> None:
        """Set a bucket to a level of the database, which counts in thousand times the unit."""
        bucket.show(int(str(level)) * (NANOSECONDS // MICROSECONDS), self.clock().tick)


async def open_shared_limiter(url: str) -> SharedLimiter:
    """Return the limiter of all gateways with the same PostgreSQL database, on a connection of its own.

    Raises:
        StorageError: the database cannot be used.
    """
    from gateway.storage.postgres import PostgresDatabase  # noqa: PLC0415 - an optional package

    limiter = SharedLimiter(PostgresDatabase(url))
    await limiter.create()
    return limiter
