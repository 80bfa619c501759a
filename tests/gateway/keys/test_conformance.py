"""All key stores do the same: that in memory, SQLite, and PostgreSQL where it is installed."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from itertools import count
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest

from gateway.keys.sql_store import SqlKeyStore
from gateway.keys.store import KeyStore
from gateway.storage.database import StorageError
from gateway.storage.place import open_database
from gateway.storage.postgres import PostgresDatabase
from tests.gateway.keys.conformance import CASES, Case, Open
from tests.gateway.keys.crowd import edit_at_once
from tests.gateway.keys.memory_store import MemoryKeyStore
from tests.postgres import installed, serving_postgres

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


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
async def test_the_store_in_sqlite(case: Case, tmp_path: Path) -> None:
    async with stores_at(str(tmp_path / "keys.db")) as open_store:
        await case(open_store)


async def test_the_store_in_postgresql() -> None:
    """One test for all cases, because the start of a server takes a second."""
    with serving_postgres(installed()) as url:
        for number, case in enumerate(CASES):
            async with stores_at(schema(url, f"case_{number}")) as open_store:
                await case(open_store)
        await many_processes_may_create_and_edit(schema(url, "crowd"))
        await a_lost_connection_is_made_again(schema(url, "lost"))
        await a_password_is_not_shown(url)


def schema(url: str, name: str) -> str:
    """Create a schema, and return the URL of a connection that uses it."""
    with psycopg.connect(url) as connection:
        connection.execute(f"CREATE SCHEMA {name}".encode())
    return f"{url}&options={quote(f'-c search_path={name}')}"


async def many_processes_may_create_and_edit(place: str) -> None:
    async with stores_at(place) as open_store:
        await edit_at_once(open_store)


async def a_lost_connection_is_made_again(place: str) -> None:
    database = PostgresDatabase(place)
    store = SqlKeyStore(database)
    await store.create()
    with pytest.raises(StorageError):
        await database.read(lambda execute: execute("SELECT pg_terminate_backend(pg_backend_pid())"))
    assert await store.keys() == []
    await store.close()


async def a_password_is_not_shown(url: str) -> None:
    place = url.replace("postgres@", "nobody-here:p%40ss-word@")
    with pytest.raises(StorageError) as caught:
        await SqlKeyStore(PostgresDatabase(place)).keys()
    assert "nobody-here" in str(caught.value)
    assert "word" not in str(caught.value)


async def test_many_processes_may_create_and_edit_an_sqlite_file(tmp_path: Path) -> None:
    async with stores_at(str(tmp_path / "keys.db")) as open_store:
        await edit_at_once(open_store)
    assert (tmp_path / "keys.db").stat().st_mode & 0o777 == 0o600
