"""The ingress while it serves: with its stores, its worker processes and its knowledge of the replicas."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import anyio
from starlette.types import ASGIApp

from gateway.cluster.ingress.affinity import PrefixPlacer
from gateway.cluster.ingress.app import create_ingress
from gateway.cluster.ingress.reading import TIMEOUT, PromptReader
from gateway.cluster.ingress.replicas import Replicas
from gateway.middleware.authentication import Authenticate, Authenticator, no_authentication
from gateway.preparation.jobs import modules_of
from gateway.preparation.pooled import PooledPreparer
from gateway.preparation.workers.pool import WorkerPool
from gateway.settings import Settings
from gateway.stores import open_histories, open_keys


@asynccontextmanager
async def open_ingress(settings: Settings, replicas: Mapping[str, Replicas], secret: bytes) -> AsyncIterator[ASGIApp]:
    """Open the application, with processes that read prompts.

    Args:
        settings: name all models, and limit each request.
        replicas: replicas of the models, by name.
        secret: that of the hashes of prompts.

    Raises:
        StorageError: a store cannot be used.
    """
    stores = await open_histories(settings, patience=TIMEOUT / 2)
    pool = WorkerPool()
    reader = PromptReader(settings, secret, PooledPreparer(pool), stores)
    slots = {one.name: one.settings.slots for one in settings.served}
    placer = PrefixPlacer(replicas, slots, reader)
    async with (
        _authentication(settings) as authenticate,
        pool.open(modules_of(reader.endpoints)),
        reader.open(),
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(placer.run)
        yield create_ingress(settings, replicas, reader.apis, placer, authenticate)
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def _authentication(settings: Settings) -> AsyncIterator[Authenticate]:
    """Yield what finds the API keys of requests, and follow the changes of their store."""
    keys = await open_keys(settings)
    if keys is None:
        yield no_authentication
        return
    async with keys.open():
        yield Authenticator(keys.find, settings.open_path)
