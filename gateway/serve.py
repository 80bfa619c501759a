"""The gateway while it serves: with its worker processes, on sockets."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace

import anyio

from gateway.app import Equipment, Gateway, create_gateway
from gateway.preparation.jobs import modules_of
from gateway.preparation.pooled import PooledPreparer
from gateway.preparation.workers.pool import WorkerPool
from gateway.server.aside import serving_aside
from gateway.server.capacity import connections_for
from gateway.server.lag import running
from gateway.server.limits import ServerLimits
from gateway.server.listen import Listening
from gateway.server.server import Server
from gateway.serving.sources import EngineSource
from gateway.settings import Settings
from gateway.tracing.opening import open_traces


@asynccontextmanager
async def open_gateway(
    engines: Mapping[str, EngineSource], settings: Settings, equipment: Equipment
) -> AsyncIterator[Gateway]:
    """Create the application with worker processes. They and the gateway run inside the context.

    The arguments are those of `create_gateway`.
    """
    pool = WorkerPool()
    preparer = PooledPreparer(pool, strict=settings.strict_fields)
    async with open_traces(settings.traces) as spans:
        gateway = create_gateway(engines, settings, replace(equipment, preparer=preparer, spans=spans))
        endpoints = (endpoint for api in gateway.apis for endpoint in api.endpoints)
        async with pool.open(modules_of(endpoints)), gateway.running(), anyio.create_task_group() as tasks:
            for model in gateway.models.all:
                if model.source.engine is not None:
                    tasks.start_soon(model.loaded().prompts.check, model.name)
            yield gateway
            tasks.cancel_scope.cancel()


async def serve_gateway(
    engines: Mapping[str, EngineSource],
    settings: Settings,
    equipment: Equipment,
    listening: Listening,
    shutdown: anyio.Event,
) -> None:
    """Serve until `shutdown` is set, then wait for open requests as `Server` does.

    Args:
        engines: sources of the engines, by the names of the models in the settings.
        settings: configure the application and the limits of the server.
        equipment: parts of the gateway that are open.
        listening: sockets to serve on.
        shutdown: starts the graceful stop once set.
    """
    clock = equipment.clock
    limits = ServerLimits(connections=connections_for(settings.all_slots, settings.queue_limit), grace=settings.grace)
    async with (
        open_gateway(engines, settings, equipment) as gateway,
        running(clock),
        serving_aside(gateway.metrics_app, listening.metrics, clock.time),
    ):
        await Server(gateway.app, limits, clock.time, listening.tls).run(listening.all, shutdown, gateway.health.drain)
