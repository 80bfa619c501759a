"""Key store in an SQL database."""

import json
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import astuple
from typing import Any

from typing_extensions import override

from gateway.keys.key import LIMITS, Key, KeyLimits
from gateway.keys.store import Edit, KeyStore, NameTakenError, NoSuchKeyError, StoredKey
from gateway.storage.database import Database, Execute, Value

SCHEMA = (
    """CREATE TABLE IF NOT EXISTS api_keys (
        id TEXT PRIMARY KEY,
        name TEXT NOT NULL,
        models TEXT,
        requests_per_minute BIGINT,
        tokens_per_minute BIGINT,
        concurrent_requests BIGINT,
        tokens_per_day BIGINT,
        tokens_per_month BIGINT,
        weight DOUBLE PRECISION NOT NULL,
        priority BIGINT NOT NULL,
        expires_at DOUBLE PRECISION,
        secret_hash TEXT NOT NULL UNIQUE,
        created_at DOUBLE PRECISION NOT NULL,
        revoked_at DOUBLE PRECISION
    )""",
    "CREATE UNIQUE INDEX IF NOT EXISTS api_keys_name ON api_keys (name) WHERE revoked_at IS NULL",
    "CREATE TABLE IF NOT EXISTS api_keys_revision (id INTEGER PRIMARY KEY, revision BIGINT NOT NULL)",
    "INSERT INTO api_keys_revision VALUES (1, 0) ON CONFLICT DO NOTHING",
)
REVISION = "SELECT revision FROM api_keys_revision"
NEW_REVISION = "UPDATE api_keys_revision SET revision = ?"
PROPERTIES = ("name", "models", *LIMITS, "weight", "priority", "expires_at")
"""Columns of what can be changed, in the order of `_encode`."""
COLUMNS = ", ".join(("id", *PROPERTIES, "secret_hash", "created_at", "revoked_at"))
ALL = f"SELECT {COLUMNS} FROM api_keys ORDER BY created_at, id"  # noqa: S608 - constants
ONE = f"SELECT {COLUMNS} FROM api_keys WHERE id = ? AND revoked_at IS NULL"  # noqa: S608 - constants
SAME_NAME = "SELECT id FROM api_keys WHERE name = ? AND id <> ? AND revoked_at IS NULL"
ADD = f"INSERT INTO api_keys ({COLUMNS}) VALUES ({'?, ' * (len(PROPERTIES) + 3)}NULL)"  # noqa: S608 - constants
EDIT = f"UPDATE api_keys SET {', '.join(f'{name} = ?' for name in PROPERTIES)} WHERE id = ?"  # noqa: S608 - constants
ROTATE = "UPDATE api_keys SET secret_hash = ? WHERE id = ?"
REVOKE = "UPDATE api_keys SET revoked_at = ? WHERE id = ?"


class SqlKeyStore(KeyStore):
    """Key store in an SQL database."""

    def __init__(self, database: Database, now: Callable[[], float] = time.time) -> None:
        self._database = database
        self._now = now

    async def create(self) -> None:
        """Create the tables, and a database that is a file, unless they exist.

        Raises:
            StorageError: the database cannot be used.
        """
        await self._database.create(SCHEMA)

    @override
    async def revision(self) -> int:
        def read(execute: Execute) -> int:
            return int(execute(REVISION)[0][0])

        return await self._database.read(read)

    @override
    async def keys(self) -> list[StoredKey]:
        def read(execute: Execute) -> list[StoredKey]:
            return [_decode(row) for row in execute(ALL)]

        return await self._database.read(read)

    @override
    async def add(self, key: Key, secret_hash: str) -> None:
        def add(execute: Execute) -> None:
            _begin_change(execute)
            _check_name(execute, key)
            execute(ADD, (key.id, *_encode(key), secret_hash, self._now()))

        await self._database.write(add)

    @override
    async def edit(self, key_id: str, edit: Edit) -> Key:
        def change(execute: Execute) -> Key:
            _begin_change(execute)
            key = edit(_active(execute, key_id))
            _check_name(execute, key)
            execute(EDIT, (*_encode(key), key_id))
            return key

        return await self._database.write(change)

    @override
    async def rotate(self, key_id: str, secret_hash: str) -> None:
        def rotate(execute: Execute) -> None:
            _begin_change(execute)
            _active(execute, key_id)
            execute(ROTATE, (secret_hash, key_id))

        await self._database.write(rotate)

    @override
    async def revoke(self, key_id: str) -> None:
        def revoke(execute: Execute) -> None:
            _begin_change(execute)
            _active(execute, key_id)
            execute(REVOKE, (self._now(), key_id))

        await self._database.write(revoke)

    @override
    async def close(self) -> None:
        await self._database.close()


def _begin_change(execute: Execute) -> None:
    """Set another revision. The row's lock lets changes of all processes run one after another.

    The number is random, so that a database restored from a copy also has another one.
    """
    execute(NEW_REVISION, (secrets.randbits(62),))


def _active(execute: Execute, key_id: str) -> Key:
    rows = execute(ONE, (key_id,))
    if not rows:
        raise NoSuchKeyError(key_id)
    return _decode(rows[0]).key


def _check_name(execute: Execute, key: Key) -> None:
    if execute(SAME_NAME, (key.name, key.id)):
        raise NameTakenError(key.name)


def _encode(key: Key) -> tuple[Value, ...]:
    """Return the values of a key's `PROPERTIES`."""
    models = None if key.models is None else json.dumps(sorted(key.models))
    return (key.name, models, *astuple(key.limits), key.weight, key.priority, key.expires_at)


def _decode(row: Sequence[Any]) -> StoredKey:
    """Return the key in a row of `COLUMNS`."""
    id_, name, models, *limits, weight, priority, expires_at, secret_hash, created_at, revoked_at = row
    key = Key(
        id=id_,
        name=name,
        models=None if models is None else frozenset(json.loads(models)),
        limits=KeyLimits(**dict(zip(LIMITS, limits, strict=True))),
        weight=weight,
        priority=priority,
        expires_at=expires_at,
    )
    return StoredKey(key=key, secret_hash=secret_hash, created_at=created_at, revoked_at=revoked_at)
