"""The keys that a running server accepts: a copy of the store in memory, kept up to date."""

import hmac
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import anyio

from gateway.keys.key import Key
from gateway.keys.secret import hash_of
from gateway.keys.sql_store import SqlKeyStore
from gateway.keys.store import KeyStore
from gateway.storage.place import open_database

logger = logging.getLogger(__name__)

POLL_INTERVAL = 0.5
"""Seconds between two looks at the store's revision, so that changes are seen within one second."""
CLOSE_TIMEOUT = 1.0
"""Seconds that the end of the server waits for the store."""


class KeyRing:
    """Keys of the command line and of a store. Finding a key never waits for the store.

    While the store cannot be used, the keys are those that it had last, and one line of the log says so.
    """

    def __init__(
        self,
        given: Sequence[str] = (),
        store: KeyStore | None = None,
        *,
        now: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        """Create a ring without the keys of the store; `load` reads them.

        Args:
            given: secrets of the command line. Each is a key without limits, and the first has the id `api-key-1`.
            store: has the other keys; unset if there are no others.
            now: returns the time in seconds since 1970.
            sleep: waits for a number of seconds.
        """
        named = ((secret, f"api-key-{number}") for number, secret in enumerate(given, 1))
        self._given = [(hash_of(secret), Key(id=name, name=name)) for secret, name in named]
        self._store = store
        self._stored: dict[str, Key] = {}
        self._revision: int | None = None
        self._reachable = True
        self._now = now
        self._sleep = sleep

    def find(self, secret: str) -> Key | None:
        """Return the key with a secret, or None for one that is unknown, revoked or expired.

        Its time does not reveal how much of a secret is right. All given keys are compared, each in constant time. The
        dictionary compares hashes, and a client cannot choose the beginning of a hash.
        """
        digest = hash_of(secret)
        key = self._stored.get(digest)
        for known, given in self._given:
            if hmac.compare_digest(known, digest):
                key = given
        if key is None or (key.expires_at is not None and key.expires_at <= self._now()):
            return None
        return key

    @property
    def empty(self) -> bool:
        """True if there is no key, so that all requests that need one are refused."""
        return not self._given and not self._stored

    async def load(self) -> None:
        """Read all keys from the store.

        Raises:
            StorageError: the store cannot be used. The keys stay as they were.
        """
        if self._store is not None:
            revision = await self._store.revision()  # first, so that the next poll sees a change between the two
            stored = await self._store.keys()
            self._stored = {one.secret_hash: one.key for one in stored if one.revoked_at is None}
            self._revision = revision

    async def reload(self) -> None:
        """Read all keys from the store, whether it has changed or not. A failure is logged."""
        self._revision = None
        await self.poll()

    async def poll(self) -> None:
        """Read all keys if the store has changed. The beginning and the end of a failure are logged."""
        if self._store is None:
            return
        try:
            if await self._store.revision() != self._revision:
                await self.load()
        except Exception as error:  # noqa: BLE001 - neither a lost database nor a broken row may end the server
            if self._reachable:
                logger.warning("the key store cannot be used, and the keys stay as they are: %s", error)
            self._reachable = False
            return
        if not self._reachable:
            logger.info("the key store can be used again")
        self._reachable = True

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Follow the changes of the store inside the context. Leaving it closes the store.

        One that does not answer is left alone after a second.
        """
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._follow)
                yield
                tasks.cancel_scope.cancel()
        finally:
            if self._store is not None:
                with anyio.move_on_after(CLOSE_TIMEOUT):
                    await self._store.close()

    async def _follow(self) -> None:
        while self._store is not None:
            await self._sleep(POLL_INTERVAL)
            await self.poll()


async def open_ring(given: Sequence[str], place: str | None) -> KeyRing:
    """Return a loaded ring. A store without keys is a warning: its place may be misspelled, or meant as a key.

    Args:
        given: secrets of the command line.
        place: place of the key store, created if it does not exist; unset without a store.

    Raises:
        StorageError: the store cannot be used.
    """
    if place is None:
        return KeyRing(given)
    store = SqlKeyStore(open_database(place))
    await store.create()
    ring = KeyRing(given, store)
    await ring.load()
    if ring.empty:
        logger.warning(
            "the store of --keys has no keys, so that requests are refused; `llama-gateway keys add` adds one"
        )
    return ring
