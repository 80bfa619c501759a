"""Gateways that share their ledgers in one PostgreSQL database."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import anyio
import anyio.lowlevel
import psycopg

from gateway.keys.key import Key
from gateway.limits.shared_limiter import SharedLimiter
from gateway.serving.records import RequestRecord
from gateway.storage.database import Batches
from gateway.storage.postgres import PostgresDatabase
from tests.gateway.limits.conformance import Bench
from tests.gateway.limits.virtual import VirtualClock, record_of

LEASE = 30.0


def limiter_on(database: Batches, clock: VirtualClock | None, lease: float = LEASE) -> SharedLimiter:
    """Return a limiter on a virtual clock, or on the clock of the database."""
    if clock is None:
        return SharedLimiter(database, lease=lease)
    return SharedLimiter(database, clock=clock, time=lambda: round(clock.time * 1_000_000), lease=lease)


async def until_settled(limiter: SharedLimiter) -> None:
    with anyio.fail_after(20):
        while limiter._queue._changes:
            await anyio.lowlevel.checkpoint()


@asynccontextmanager
async def benches(url: str, count: int = 1, lease: float = LEASE) -> AsyncIterator[list[Bench]]:
    """Open gateways on one database without ledgers, on one virtual clock."""
    clock = VirtualClock()
    limiters = [limiter_on(PostgresDatabase(url), clock, lease) for _ in range(count)]
    await limiters[0].create()
    with psycopg.connect(url) as connection:
        connection.execute("TRUNCATE limit_ledgers, limit_reservations")
    async with anyio.create_task_group() as tasks:
        stop = anyio.Event()

        async def run(limiter: SharedLimiter, *, task_status: anyio.abc.TaskStatus[None]) -> None:
            async with limiter.open():
                task_status.started()
                await stop.wait()

        for limiter in limiters:
            await tasks.start(run, limiter)
        yield [Bench(limiter, clock, partial(until_settled, limiter)) for limiter in limiters]
        stop.set()


def run_twice(key: Key) -> tuple[RequestRecord, RequestRecord]:
    """Return the records of a request that runs again, with prompts of 30 and then of 40 tokens."""
    one, again = record_of(key, prompt_tokens=30), record_of(key, prompt_tokens=40)
    again.id = one.id
    return one, again


def total(url: str, key_id: str = "key_1") -> tuple[int, int, int]:
    """Return the charged tokens of the day, the reserved ones, and the number of open requests of a key."""
    charged = "SELECT COALESCE(sum(day_tokens), 0) FROM limit_ledgers WHERE key_id = %s"
    reserved = """SELECT COALESCE(sum(day_tokens), 0), count(*) FROM limit_reservations
        WHERE key_id = %s AND ended_at IS NULL"""
    with psycopg.connect(url) as connection:
        (row,) = connection.execute(charged, (key_id,)).fetchall()
        (held,) = connection.execute(reserved, (key_id,)).fetchall()
    return int(row[0]), int(held[0]), held[1]
