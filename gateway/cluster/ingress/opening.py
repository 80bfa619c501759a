"""The ingress while it serves: with its worker processes and its knowledge of the replicas."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import anyio
from starlette.types import ASGIApp

from gateway.cluster.ingress.affinity import PrefixPlacer
from gateway.cluster.ingress.app import create_ingress
from gateway.cluster.ingress.reading import PromptReader
from gateway.cluster.ingress.replicas import Replicas
from gateway.middleware.authentication import Authenticator, no_authentication
from gateway.preparation.jobs import modules_of
from gateway.preparation.pooled import PooledPreparer
from gateway.preparation.workers.pool import WorkerPool
from gateway.settings import Settings
from gateway.stores import open_keys


@asynccontextmanager
async def open_ingress(settings: Settings, replicas: Mapping[str, Replicas], secret: bytes) -> AsyncIterator[ASGIApp]:
    """Open the application, with processes that read prompts.

    Args:
        settings: name all models, and limit each request.
        replicas: replicas of the models, by name.
        secret: that of the hashes of prompts.

    Raises:
        StorageError: the store of the keys cannot be used.
    """
    keys = await open_keys(settings)
    authenticate = no_authentication if keys is None else Authenticator(keys.find, settings.open_path)
    pool = WorkerPool()
    reader = PromptReader(settings, secret, PooledPreparer(pool), authenticate)
    slots = {one.name: one.settings.slots for one in settings.served}
    placer = PrefixPlacer(replicas, slots, reader)
    async with pool.open(modules_of(reader.endpoints)), anyio.create_task_group() as tasks:
        tasks.start_soon(placer.run)
        if keys is not None:
            tasks.start_soon(keys.run)
        yield create_ingress(settings, replicas, reader.apis, placer)
        tasks.cancel_scope.cancel()
    if keys is not None:
        await keys.close()
