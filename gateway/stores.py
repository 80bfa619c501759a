"""Stores that the settings name: API keys, their limits, the usage of requests, and stored responses."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gateway.settings import Settings
from gateway.storage.database import StorageError
from gateway.storage.place import is_url

if TYPE_CHECKING:
    from gateway.apis.openai.stores import Bounds, Stores
    from gateway.keys.ring import KeyRing
    from gateway.limits.limiter import Limiter
    from gateway.usage.writer import UsageWriter

CHECK_PATIENCE = 5.0
"""Seconds in which the store of responses must open before a cluster starts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenStores:
    """The stores that the settings name, each None without one."""

    keys: "KeyRing | None" = None
    """API keys that requests need; without them, no request needs one."""
    limiter: "Limiter | None" = None
    """Limits of keys that gateways share; unset to count their use in this process alone."""
    usage: "UsageWriter | None" = None
    """Stores the usage of requests."""
    responses: "Stores | None" = None
    """Responses and conversations that gateways share; unset to keep them in this process's memory."""


async def open_stores(settings: Settings, *, at_once: bool = False) -> OpenStores:
    """Open the stores that the settings name.

    Args:
        settings: name the stores.
        at_once: store usage as soon as the store has taken that before, instead of once a second.

    Raises:
        StorageError: one cannot be used. The text names its flag.
    """
    with _named("--keys"):
        keys, limiter = await open_keys(settings), await open_limiter(settings)
    with _named("--usage"):
        usage = await _open_usage(settings, at_once=at_once)
    with _named("--responses-store"):
        responses = await _open_responses(settings)
    return OpenStores(keys=keys, limiter=limiter, usage=usage, responses=responses)


async def open_keys(settings: Settings) -> "KeyRing | None":
    """Return the API keys that requests need, or None if they need none.

    Raises:
        StorageError: the store cannot be used.
    """
    if not settings.api_key and settings.keys is None:
        return None
    from gateway.keys.ring import open_ring  # noqa: PLC0415 - few servers need it before the engine starts

    return await open_ring(settings.api_key, settings.keys)


async def check_stores(settings: Settings) -> None:
    """Open the stores of keys, of usage and of responses once, before many processes do.

    Raises:
        StorageError: one cannot be used. The text names its flag.
    """
    with _named("--keys"):
        if (keys := await open_keys(settings)) is not None:
            async with keys.open():
                pass
    with _named("--usage"):
        if (usage := await _open_usage(settings)) is not None:
            await usage.store.close()
    with _named("--responses-store"):
        if (stores := await open_histories(settings, CHECK_PATIENCE)) is not None:
            async with stores.open():
                pass


@contextmanager
def _named(flag: str) -> Iterator[None]:
    """Name the flag of a store that cannot be used."""
    try:
        yield
    except StorageError as error:
        raise _unusable(flag, error) from error


def _unusable(flag: str, error: StorageError) -> StorageError:
    return StorageError(f"{flag}: the store cannot be used: {error}")


def storage_error(failures: BaseExceptionGroup) -> StorageError | None:
    """Return the error of the store of usage if it failed after its opening, or None if something else failed, too."""
    stores, others = failures.split(StorageError)
    failure: BaseException | None = None if others else stores
    while isinstance(failure, BaseExceptionGroup):
        failure = failure.exceptions[0]
    return _unusable("--usage", failure) if isinstance(failure, StorageError) else None


async def open_limiter(settings: Settings) -> "Limiter | None":
    """Return the limits that gateways with the same PostgreSQL store of keys share, or None with another store.

    Raises:
        StorageError: the store cannot be used.
    """
    if settings.keys is None or not is_url(settings.keys):
        return None
    from gateway.limits.shared_limiter import open_shared_limiter  # noqa: PLC0415 - few servers need it

    return await open_shared_limiter(settings.keys)


async def _open_usage(settings: Settings, *, at_once: bool = False) -> "UsageWriter | None":
    """Return the writer of the requests' usage, by default to the store of the keys, or None without one."""
    place = settings.usage or settings.keys
    if place is None:
        return None
    from gateway.usage.store import usage_store  # noqa: PLC0415 - few servers need it before the engine starts
    from gateway.usage.writer import INTERVAL, UsageWriter  # noqa: PLC0415 - the same

    store = usage_store(place)
    await store.create()
    return UsageWriter(store, interval=0.0 if at_once else INTERVAL)


async def _open_responses(settings: Settings) -> "Stores | None":
    """Return the stores of responses and conversations that gateways share, or None for this process's memory."""
    if settings.responses_store is None:
        return None
    from gateway.apis.openai.shared_store.opening import open_shared_stores  # noqa: PLC0415 - few servers need it

    return await open_shared_stores(settings.responses_store, bounds_of(settings))


async def open_histories(settings: Settings, patience: float) -> "Stores | None":
    """Return the same stores for a process that only reads what responses would continue.

    Args:
        settings: name the stores.
        patience: maximum time that a request waits for the database, in seconds.

    Raises:
        StorageError: the database cannot be used.
    """
    if settings.responses_store is None:
        return None
    from gateway.apis.openai.shared_store import opening  # noqa: PLC0415 - few servers need it

    return await opening.open_histories(settings.responses_store, bounds_of(settings), patience)


def bounds_of(settings: Settings) -> "Bounds":
    """Return the limits of stored responses and conversations."""
    from gateway.apis.openai.stores import Bounds  # noqa: PLC0415 - few processes need it before the engine starts

    return Bounds(settings.stored_responses, settings.stored_bytes, settings.body_limit)
