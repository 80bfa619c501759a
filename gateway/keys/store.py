"""Storage of API keys: what a store does, and its errors."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from gateway.keys.key import Key


class KeyStoreError(Exception):
    """A change of keys is not possible. The text is one line for the operator."""


class NoSuchKeyError(KeyStoreError):
    """No active key has this id."""

    def __init__(self, key_id: str) -> None:
        super().__init__(f"there is no active key {key_id!r}")


class NameTakenError(KeyStoreError):
    """Another active key has this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"another active key has the name {name!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredKey:
    """A key with what only the store knows of it."""

    key: Key
    """The key."""
    secret_hash: str = field(repr=False)
    """Hash of the secret, by `hash_of`."""
    created_at: float
    """Time of its creation, in seconds since 1970."""
    revoked_at: float | None = None
    """Time from which it is refused for ever, in seconds since 1970; unset while it is active."""


Edit = Callable[[Key], Key]
"""Function that returns a key with other properties, and the same id."""


class KeyStore(Protocol):
    """Keys of all servers that share the store. Any number of processes may use it at the same time.

    All methods raise `gateway.storage.database.StorageError` if the store cannot be used. Those that change a key
    raise `NoSuchKeyError` unless it is active. A revoked key stays in the store, because its usage refers to it.
    """

    async def revision(self) -> int:
        """Return a number that differs after every change. Cheap enough to be asked for often."""

    async def keys(self) -> list[StoredKey]:
        """Return all keys, the oldest first."""

    async def add(self, key: Key, secret_hash: str) -> None:
        """Add a key. Raises `NameTakenError` if an active key has its name."""

    async def edit(self, key_id: str, edit: Edit) -> Key:
        """Change and return a key, as one step for all processes. Raises `NameTakenError` as `add`."""

    async def rotate(self, key_id: str, secret_hash: str) -> None:
        """Replace the secret of a key."""

    async def revoke(self, key_id: str) -> None:
        """Revoke a key. Its name is free for another one then."""

    async def close(self) -> None:
        """Close the store."""
