"""The file of an SQLite database: who may read it, and what happens when it is lost."""

import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from gateway.storage import sqlite
from gateway.storage.database import Execute, StorageError
from gateway.storage.sqlite import SQLiteDatabase
from tests.threads import refuse_in_thread

pytestmark = pytest.mark.anyio

SCHEMA = ("CREATE TABLE IF NOT EXISTS numbers (number BIGINT)",)
WAL_FILES = ("a.db-shm", "a.db-wal")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.db"


def add(execute: Execute) -> None:
    execute("INSERT INTO numbers VALUES (?)", (1,))


def count(execute: Execute) -> int:
    return int(execute("SELECT COUNT(*) FROM numbers")[0][0])


@pytest.fixture
def other(path: Path) -> Iterator[sqlite3.Connection]:
    """Return the connection of a process that creates the same file, and has not given it a write-ahead log yet."""
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield connection


async def created(path: Path) -> SQLiteDatabase:
    database = SQLiteDatabase(path)
    await database.create(SCHEMA)
    return database


async def test_only_its_owner_may_read_the_files(path: Path) -> None:
    database = await created(path)
    await database.write(add)
    files = [path, *(path.with_name(name) for name in WAL_FILES)]
    assert [file.stat().st_mode & 0o777 for file in files] == [0o600] * 3
    await database.close()
    assert [file for file in files if file.exists()] == [path]


async def test_a_failed_transaction_changes_nothing(path: Path) -> None:
    database = await created(path)

    def fail(execute: Execute) -> None:
        add(execute)
        raise KeyError("defect")

    with pytest.raises(KeyError):
        await database.write(fail)
    assert await database.read(count) == 0
    await database.write(add)
    assert await database.read(count) == 1
    await database.close()


async def test_without_a_thread_the_database_cannot_be_used(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = await created(path)
    with monkeypatch.context() as full:
        full.setattr(anyio.to_thread, "run_sync", refuse_in_thread)
        for work in (database.read(count), database.write(count), database.create(SCHEMA)):
            with pytest.raises(StorageError, match=r"^can't start new thread$"):
                await work
        await database.close()
    assert await database.read(count) == 0
    await database.close()


async def test_another_error_of_work_is_no_lack_of_threads(path: Path) -> None:
    def fail(_execute: Execute) -> None:
        raise RuntimeError("defect")

    database = await created(path)
    with pytest.raises(RuntimeError, match="defect"):
        await database.read(fail)
    await database.close()


async def test_a_reader_does_not_wait_for_a_writer(path: Path) -> None:
    database, other = await created(path), SQLiteDatabase(path)
    await database.write(add)

    def write_slowly(execute: Execute) -> int:
        add(execute)
        return other._run("DEFERRED", count)

    assert await database.write(write_slowly) == 1
    assert await other.read(count) == 2
    await database.close()
    await other.close()


async def test_a_replaced_file_is_opened_again(path: Path) -> None:
    database = await created(path)
    await database.write(add)
    await anyio.Path(path).rename(path.with_name("old.db"))
    with pytest.raises(StorageError, match="No such file or directory"):
        await database.read(count)
    assert not await anyio.Path(path).exists()
    new = await created(path)
    assert await database.read(count) == 0
    await database.close()
    await new.close()


async def test_a_backup_is_made_and_put_back_while_the_file_is_used(path: Path) -> None:
    database = await created(path)
    await database.write(add)
    with closing(sqlite3.connect(path)) as file, closing(sqlite3.connect(path.with_name("backup.db"))) as backup:
        file.backup(backup)
        await database.write(add)
        backup.backup(file)
    assert await database.read(count) == 1
    await database.write(add)
    assert await database.read(lambda execute: execute("PRAGMA integrity_check")) == [("ok",)]
    await database.close()


async def test_a_file_that_is_no_database_is_an_error(path: Path) -> None:
    await anyio.Path(path).write_bytes(b"Not a database. " * 100)
    database = SQLiteDatabase(path)
    with pytest.raises(StorageError, match="file is not a database"):
        await database.create(SCHEMA)
    await database.close()


async def test_a_missing_folder_and_a_missing_table_are_errors(tmp_path: Path, path: Path) -> None:
    with pytest.raises(StorageError, match="No such file or directory"):
        await SQLiteDatabase(tmp_path / "missing" / "a.db").create(SCHEMA)
    await anyio.Path(path).touch()
    database = SQLiteDatabase(path)
    with pytest.raises(StorageError, match="no such table: numbers"):
        await database.read(count)
    await database.close()


async def test_a_path_may_have_characters_of_urls(tmp_path: Path) -> None:
    database = await created(tmp_path / "a?mode=memory#%41 b.db")
    await database.write(add)
    assert (tmp_path / "a?mode=memory#%41 b.db").stat().st_size
    await database.close()


OTHER_PROCESS = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("INSERT INTO numbers VALUES (2)")
connection.commit()
connection.close()
"""


async def test_two_databases_of_one_process_keep_their_locks_on_a_file(path: Path) -> None:
    """Without them another process that closes the file takes itself for the last, and deletes the log of changes."""
    keys, usage = await created(path), await created(path)
    assert await keys.read(count) == 0
    await usage.create(SCHEMA)
    await anyio.run_process([sys.executable, "-c", OTHER_PROCESS, str(path)], stderr=None)
    assert path.with_name("a.db-wal").exists()
    assert await keys.read(count) == await usage.read(count) == 1
    await keys.close()
    await usage.close()


async def test_a_file_that_another_process_creates_is_waited_for(
    path: Path, other: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "sleep", lambda _seconds: other.execute("COMMIT"))
    database = await created(path)
    await database.write(add)
    assert await database.read(count) == 1
    await database.close()


async def test_a_file_that_another_process_never_finishes_is_an_error(
    path: Path, other: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "BUSY_TIMEOUT", 0.0)
    database = SQLiteDatabase(path)
    with pytest.raises(StorageError, match="locked"):
        await database.create(SCHEMA)
    assert other.in_transaction
    await database.close()
