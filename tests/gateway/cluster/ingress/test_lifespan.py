"""The application of an ingress between its server's lifespan events."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.cluster.health import UnhealthyError
from gateway.cluster.ingress.lifespan import WithLifespan

pytestmark = pytest.mark.anyio

LIFESPAN: Scope = {"type": "lifespan"}
STARTED, STOPPED = ({"type": f"lifespan.{what}.complete"} for what in ("startup", "shutdown"))


class Defect(Exception):
    """A failure of a background task."""


class Served:
    """An application with a background task that fails on request, and the server of it."""

    def __init__(self) -> None:
        self.fails, self.stops, self.started = anyio.Event(), anyio.Event(), anyio.Event()
        self.served: list[str] = []
        self.sent: list[Message] = []
        self.app = WithLifespan(self._open())

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[ASGIApp]:
        async def serve(scope: Scope, _receive: Receive, _send: Send) -> None:
            self.served.append(scope["path"])

        async def fail() -> None:
            await self.fails.wait()
            raise Defect

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fail)
            yield serve
            tasks.cancel_scope.cancel()

    async def run(self) -> None:
        """Send the lifespan events: the second one when the test stops the server."""
        await self.app(LIFESPAN, self.receive, self.send)

    async def receive(self) -> Message:
        if self.sent:
            await self.stops.wait()
        return {"type": "lifespan.shutdown" if self.sent else "lifespan.startup"}

    async def send(self, message: Message) -> None:
        self.sent.append(message)
        self.started.set()


async def test_it_serves_between_the_events_and_is_healthy() -> None:
    served = Served()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(served.run)
        await served.started.wait()
        served.app.check()
        await served.app({"type": "http", "path": "/health"}, served.receive, served.send)
        assert served.served == ["/health"]
        assert served.sent == [STARTED]
        served.stops.set()
    assert served.sent == [STARTED, STOPPED]
    with pytest.raises(UnhealthyError):
        served.app.check()


async def test_a_failure_of_a_background_task_makes_it_unhealthy() -> None:
    served = Served()
    with pytest.RaisesGroup(Defect, flatten_subgroups=True):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(served.run)
            await served.started.wait()
            served.fails.set()
    assert served.sent == [STARTED]
    with pytest.raises(UnhealthyError):
        served.app.check()
