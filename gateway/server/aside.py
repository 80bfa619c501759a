"""Server of an operator's application, beside the server of the clients."""

import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import anyio
from starlette.types import ASGIApp

from gateway.middleware.patience import Clock
from gateway.server.capacity import METRICS_CONNECTIONS
from gateway.server.limits import ServerLimits
from gateway.server.server import Server

LIMITS = ServerLimits(connections=METRICS_CONNECTIONS, grace=1.0, close_timeout=1.0)
"""Limits of an application with a few clients and short responses."""


@asynccontextmanager
async def serving_aside(app: ASGIApp, sockets: Sequence[socket.socket], clock: Clock) -> AsyncIterator[None]:
    """Serve an application inside the context if there are sockets, so that it serves while the other server drains.

    Args:
        app: The ASGI application.
        sockets: Listening sockets, which are closed at the end.
        clock: Clock by which the patience with clients is measured.
    """
    ended = anyio.Event()
    async with anyio.create_task_group() as tasks:
        if sockets:
            tasks.start_soon(Server(app, LIMITS, clock).run, list(sockets), ended)
        yield
        ended.set()
