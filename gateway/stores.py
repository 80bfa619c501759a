"""Stores that the settings name: API keys, and the usage of requests."""

from typing import TYPE_CHECKING

from gateway.settings import Settings

if TYPE_CHECKING:
    from gateway.keys.ring import KeyRing
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
