"""All key stores do the same: that in memory, SQLite, and PostgreSQL where it is installed."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from itertools import count

import pytest

from gateway.keys.sql_store import SqlKeyStore
from gateway.keys.store import KeyStore
from gateway.storage.database import StorageError
from gateway.storage.place import open_database
from gateway.storage.postgres import PostgresDatabase
from tests.gateway.keys.conformance import CASES, Case, Open
from tests.gateway.keys.crowd import edit_at_once
from tests.gateway.keys.memory_store import MemoryKeyStore
from tests.repeat import every_case

pytestmark = pytest.mark.anyio


def clock() -> Callable[[], float]:
    """Return a clock that advances at each look."""
    return partial(next, map(float, count(1)))


@asynccontextmanager
async def stores_at(place: str) -> AsyncIterator[Open]:
    """Open the store at a place as often as asked for; close all at the end."""
    now = clock()
    async with AsyncExitStack() as opened:

        async def open_store() -> KeyStore:
            store = SqlKeyStore(open_database(place), now)
            opened.push_async_callback(store.close)
            await store.create()
            return store

        yield open_store


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
async def test_the_store_in_memory(case: Case) -> None:
    store = MemoryKeyStore(clock())

    async def open_store() -> KeyStore:
        return store

    await case(open_store)


@every_case
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
async def test_the_stores_in_databases(case: Case, store_place: str) -> None:
    async with stores_at(store_place) as open_store:
        await case(open_store)


async def test_many_connections_may_create_and_edit(store_place: str) -> None:
    async with stores_at(store_place) as open_store:
        await edit_at_once(open_store)


async def test_a_lost_connection_is_made_again(url: str) -> None:
    database = PostgresDatabase(url)
    store = SqlKeyStore(database)
    await store.create()
    with pytest.raises(StorageError):
        await database.read(lambda execute: execute("SELECT pg_terminate_backend(pg_backend_pid())"))
    assert await store.keys() == []
    await store.close()


async def test_a_password_is_not_shown(url: str) -> None:
    place = url.replace("postgres@", "nobody-here:p%40ss-word@")
    with pytest.raises(StorageError) as caught:
        await SqlKeyStore(PostgresDatabase(place)).keys()
    assert "nobody-here" in str(caught.value)
    assert "word" not in str(caught.value)
