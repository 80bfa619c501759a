"""Key store in memory: the same behavior as that of the databases, and failures on demand."""

import time
from collections.abc import Callable
from dataclasses import replace

import anyio.lowlevel
from typing_extensions import override

from gateway.keys.key import Key
from gateway.keys.store import Edit, KeyStore, NameTakenError, NoSuchKeyError, StoredKey
from gateway.storage.database import StorageError


class MemoryKeyStore(KeyStore):
    """Key store that is lost at the end of the process."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self.failure: str | None = None
        """Reason for which the store cannot be used; unset if it can."""
        self.reads = 0
        """Number of times that all keys were read."""
        self._now = now
        self._revision = 0
        self._keys: dict[str, StoredKey] = {}

    @override
    async def revision(self) -> int:
        await self._available()
        return self._revision

    @override
    async def keys(self) -> list[StoredKey]:
        await self._available()
        self.reads += 1
        return list(self._keys.values())

    @override
    async def add(self, key: Key, secret_hash: str) -> None:
        await self._available()
        self._put(StoredKey(key=key, secret_hash=secret_hash, created_at=self._now()))

    @override
    async def edit(self, key_id: str, edit: Edit) -> Key:
        stored = await self._active(key_id)
        key = edit(stored.key)
        self._put(replace(stored, key=key))
        return key

    @override
    async def rotate(self, key_id: str, secret_hash: str) -> None:
        self._put(replace(await self._active(key_id), secret_hash=secret_hash))

    @override
    async def revoke(self, key_id: str) -> None:
        self._put(replace(await self._active(key_id), revoked_at=self._now()))

    @override
    async def close(self) -> None:
        await anyio.lowlevel.checkpoint()

    async def _available(self) -> None:
        await anyio.lowlevel.checkpoint()
        if self.failure is not None:
            raise StorageError(self.failure)

    async def _active(self, key_id: str) -> StoredKey:
        await self._available()
        stored = self._keys.get(key_id)
        if stored is None or stored.revoked_at is not None:
            raise NoSuchKeyError(key_id)
        return stored

    def _put(self, stored: StoredKey) -> None:
        others = (other for other in self._keys.values() if other.key.id != stored.key.id and other.revoked_at is None)
        if any(other.key.name == stored.key.name for other in others):
            raise NameTakenError(stored.key.name)
        self._keys[stored.key.id] = stored
        self._revision += 1
