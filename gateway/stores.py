"""Stores that the settings name: API keys, their limits, and the usage of requests."""

from typing import TYPE_CHECKING

from gateway.settings import Settings
from gateway.storage.place import is_url

if TYPE_CHECKING:
    from gateway.keys.ring import KeyRing
    from gateway.limits.limiter import Limiter
    from gateway.usage.store import UsageStore


async def open_keys(settings: Settings) -> "KeyRing | None":
    """Return the API keys that requests need, or None if they need none.

    Raises:
        StorageError: the store cannot be used.
    """
    if not settings.api_key and settings.keys is None:
        return None
    from gateway.keys.ring import open_ring  # noqa: PLC0415 - few servers need it before the engine starts

    return await open_ring(settings.api_key, settings.keys)


async def open_limiter(settings: Settings) -> "Limiter | None":
    """Return the limits that gateways with the same PostgreSQL store of keys share, or None with another store.

    Raises:
        StorageError: the store cannot be used.
    """
    if settings.keys is None or not is_url(settings.keys):
        return None
    from gateway.limits.shared_limiter import open_shared_limiter  # noqa: PLC0415 - few servers need it

    return await open_shared_limiter(settings.keys)


async def open_usage(settings: Settings) -> "UsageStore | None":
    """Return the store of the requests' usage, by default that of the keys, or None without one.

    Raises:
        StorageError: the store cannot be used.
    """
    place = settings.usage or settings.keys
    if place is None:
        return None
    from gateway.usage.store import usage_store  # noqa: PLC0415 - few servers need it before the engine starts

    store = usage_store(place)
    await store.create()
    return store
