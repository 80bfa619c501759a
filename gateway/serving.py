"""HTTP in front of the engines, from their start to the last connection's end."""

import socket

import anyio

from engine import Engine
from gateway.app import create_gateway
from gateway.capacity import connections_for
from gateway.edge.limits import ServerLimits
from gateway.edge.server import serve
from gateway.settings import Settings


async def serve_engines(
    settings: Settings,
    sockets: list[socket.socket],
    shutdown: anyio.Event,
    engine: Engine,
    embedder: Engine | None = None,
) -> None:
    """Serve on listening sockets until `shutdown` is set and what is open has ended; takes as long as `serve` does.

    `embedder` runs the model of `settings.embedding_model`, where that is another.
    """
    gateway = create_gateway(engine, settings, embedder)
    limits = ServerLimits(connections=connections_for(settings), grace=settings.grace)
    async with gateway.background.open():
        await serve(gateway.app, sockets, limits, shutdown=shutdown, on_draining=gateway.health.drain)
