"""Opening of the shared stores."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gateway.apis.openai.shared_store.conversations import SharedConversations, UnlockedConversations
from gateway.apis.openai.shared_store.presence import LEASE, Presence
from gateway.apis.openai.shared_store.responses import SharedResponses
from gateway.apis.openai.shared_store.schema import SCHEMA
from gateway.apis.openai.shared_store.storage import Storage
from gateway.apis.openai.stores import Bounds, Stores
from gateway.storage.place import open_database


async def open_shared_stores(url: str, bounds: Bounds, *, lease: float = LEASE) -> Stores:
    """Return the stores in a PostgreSQL database, which all gateways with its URL share.

    Args:
        url: URL of the database.
        bounds: limits of the stores, the same for all gateways.
        lease: seconds after which this gateway counts as dead.

    Raises:
        StorageError: the database cannot be used.
    """
    database = open_database(url)
    await database.create(SCHEMA)
    presence = Presence(Storage(open_database(url)), bounds, lease)
    storage = Storage(database)

    @asynccontextmanager
    async def opened() -> AsyncIterator[None]:
        try:
            async with presence.open():
                yield
        finally:
            await storage.close()

    return Stores(SharedResponses(storage, presence, bounds), SharedConversations(storage, presence, bounds), opened)


async def open_histories(url: str, bounds: Bounds, patience: float) -> Stores:
    """Return the same stores for a process that only reads what responses would continue. It has no lease.

    Args:
        url: URL of the database.
        bounds: limits of the stores, the same as those of the gateways.
        patience: maximum time that a request waits for the database, in seconds.

    Raises:
        StorageError: the database cannot be used.
    """
    database = open_database(url)
    await database.create(SCHEMA)
    storage = Storage(database, patience)
    presence = Presence(storage, bounds)

    @asynccontextmanager
    async def opened() -> AsyncIterator[None]:
        try:
            yield
        finally:
            await storage.close()

    return Stores(SharedResponses(storage, presence, bounds), UnlockedConversations(storage, presence, bounds), opened)
