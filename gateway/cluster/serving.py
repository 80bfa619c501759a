"""The gateway of a replica: one model with its engine, without a server."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from engine import Engine
from gateway.app import Equipment, Gateway
from gateway.engines import open_engines
from gateway.serve import open_gateway
from gateway.server.lag import LoopClock, running
from gateway.serving.prefixes import HeldPrefixes
from gateway.settings import Settings
from gateway.stores import open_stores


@asynccontextmanager
async def open_replica(settings: Settings, prefixes: HeldPrefixes) -> AsyncIterator[tuple[Gateway, Engine]]:
    """Open the gateway of one model, and its engine. Waits until the model is loaded.

    Args:
        settings: name one model, which is not loaded on demand.
        prefixes: reports the prefixes that the engine holds.

    Raises:
        LoadError: the model cannot be loaded.
        StorageError: a store cannot be used. The text names its flag.
    """
    stores = await open_stores(settings, at_once=True)
    clock = LoopClock()
    async with open_engines(settings, clock.time) as sources:
        equipment = Equipment(stores=stores, clock=clock, prefixes=prefixes)
        async with open_gateway(sources, settings, equipment) as gateway, running(clock):
            (engine,) = (source.engine for source in sources.values() if source.engine is not None)
            await engine.ready()
            yield gateway, engine
