"""The whole gateway in the test's own event loop, with a real engine process and clients on real sockets."""

import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import orjson
from anyio.abc import TaskStatus

from engine import Engine, EngineMetrics, GenerationRequest, SlotInfo, Supervision, open_engine
from engine.environment import command_for
from gateway.app import Equipment, Gateway, create_gateway
from gateway.cli import read_settings
from gateway.serve import open_gateway
from gateway.server.capacity import connections_for
from gateway.server.limits import ServerLimits
from gateway.server.listen import listen
from gateway.server.server import Server
from gateway.serving.sources import EngineSource, OpenEngine
from gateway.settings import Settings
from gateway.stores import OpenStores
from gateway.usage.writer import UsageWriter
from tests.engine import fake_child
from tests.gateway.server.sockets import Answer, Client
from tests.gateway.server.tls.certificates import server_context
from tests.gateway.server.tls.clients import TlsClient
from tests.models import model_path
from tests.program import FLAGS, engines_of

FAKE_ENGINE = command_for(fake_child.__name__)
GUARD = 120.0
"""Seconds after which a test gives up waiting. Never a part of an assertion."""
PASS = 0.01
"""Seconds of a pass of the fake model that lasts long enough for a client to leave in it."""
MANY = 50_000
"""Tokens of an answer that no test reads to its end."""
LONG_PROMPT = "x" * 60_000
"""A prompt of many passes."""
PATIENT = Supervision(stall_timeout=10 * GUARD)
"""On a busy machine a pass may take longer than an engine usually may."""


@dataclass
class Served:
    """A gateway that serves, seen from both sides."""

    port: int
    engine: Engine
    gateway: Gateway
    server: Server
    shutdown: anyio.Event
    draining: anyio.Event
    stopped: anyio.Event
    secure: bool = False
    """True if the server has TLS."""
    clients: list[Client] = field(default_factory=list)
    """Clients that may be open. They are closed with the gateway, at any end of the test."""

    @property
    def engine_pid(self) -> int:
        (pid,) = engines_of(os.getpid())
        return pid

    def client(self, receive_buffer: int | None = None) -> Client:
        client = Client(self.port, receive_buffer)
        self.clients = [*(known for known in self.clients if known.is_open), client]
        return client

    async def connect(self) -> Client:
        """Return a client that is connected as the server wants it: over TLS if it has TLS."""
        if not self.secure:
            return self.client()
        client = TlsClient(self.port)
        self.clients.append(client)
        await client.handshake()
        return client

    async def send(self, request: bytes, receive_buffer: int | None = None) -> Client:
        """Send a request on a new connection, and return its client."""
        client = self.client(receive_buffer)
        await client.send(request)
        return client

    async def answer(self, request: bytes) -> Answer:
        """Send one request on a new connection and return its answer."""
        client = self.client()
        try:
            with anyio.fail_after(GUARD):
                await client.send(request)
                return await client.answer()
        finally:
            client.close()

    @asynccontextmanager
    async def slot_in_use(self) -> AsyncIterator[None]:
        """Use a slot by a request to the engine itself, which the gateway's limits of time do not end."""
        async with self.engine.generate(GenerationRequest(id="holds", prompts=("x",), max_tokens=MANY)) as request:
            with anyio.fail_after(GUARD):
                await request.started()
            yield

    async def content(self, request: bytes) -> Any:
        """Return the decoded content of the answer to a request that must succeed."""
        answer = await self.answer(request)
        assert answer.status == 200, answer.body
        return orjson.loads(answer.body)

    async def connections_fall_to(self, number: int) -> None:
        with anyio.fail_after(GUARD):
            await self.server.count_falls_to(number)

    async def slots(self) -> tuple[SlotInfo, ...]:
        return (await self.engine.inspect())[0]

    async def metrics(self) -> EngineMetrics:
        return (await self.engine.inspect())[1]

    async def until(self, holds: Callable[[tuple[SlotInfo, ...], EngineMetrics], bool]) -> EngineMetrics:
        """Wait until a condition of the slots and the metrics is true."""
        with anyio.fail_after(GUARD):
            while True:
                slots, metrics = await self.engine.inspect()
                if holds(slots, metrics):
                    return metrics
                await anyio.sleep(0.001)

    async def until_in(self, state: str, request_id: str) -> EngineMetrics:
        """Wait until a slot is in a state for a request."""
        return await self.until(lambda slots, _: any(s.state == state and s.request_id == request_id for s in slots))

    async def until_gone(self, request_id: str) -> EngineMetrics:
        return await self.until(lambda slots, _: all(s.request_id != request_id for s in slots))

    async def until_idle(self) -> EngineMetrics:
        """Wait until no request runs or waits and every slot is free; the ledger must balance."""
        metrics = await self.until(lambda slots, f: not f.waiting and all(slot.state == "idle" for slot in slots))
        assert metrics.active_tokens == 0
        assert metrics.free == metrics.slots
        return metrics


@asynccontextmanager
async def inline_gateway(
    engines: Mapping[str, EngineSource], settings: Settings, equipment: Equipment
) -> AsyncIterator[Gateway]:
    """Open a gateway without worker processes, whose start takes longer than most tests."""
    gateway = create_gateway(engines, settings, equipment)
    async with gateway.running():
        yield gateway


@asynccontextmanager
async def serving(
    *,
    seconds_per_pass: float | None = None,
    supervision: Supervision | None = None,
    pooled: bool = False,
    secure: bool = False,
    usage: UsageWriter | None = None,
    **fields: Any,
) -> AsyncIterator[Served]:
    """Serve a real model, or the fake one with slow passes, so that every phase lasts.

    With `pooled` it has worker processes, as the program has. `tests/gateway/preparation` shows that both do the same.
    With `secure` it has TLS.
    """
    fake = seconds_per_pass is not None
    settings = _settings(fields, fake=fake)
    command = [*FAKE_ENGINE, str(seconds_per_pass)] if fake else None
    sockets = listen("127.0.0.1", 0)
    port = sockets[0].getsockname()[1]
    shutdown, draining, stopped = anyio.Event(), anyio.Event(), anyio.Event()
    async with open_engine(settings.engine_config(), command=command, limits=supervision or PATIENT) as engine:

        async def run(*, task_status: TaskStatus[tuple[Gateway, Server]]) -> None:
            opener = open_gateway if pooled else inline_gateway
            engines = {settings.served_name: OpenEngine(engine)}
            async with opener(engines, settings, Equipment(stores=OpenStores(usage=usage))) as gateway:

                def drain() -> None:
                    gateway.health.drain()
                    draining.set()

                server = Server(gateway.app, _limits(settings), tls=server_context if secure else None)
                task_status.started((gateway, server))
                await server.run(sockets, shutdown, drain)
            stopped.set()

        async with anyio.create_task_group() as tasks:
            gateway, server = await tasks.start(run)
            with anyio.fail_after(GUARD):
                await engine.ready()
            served = Served(port, engine, gateway, server, shutdown, draining, stopped, secure)
            try:
                yield served
            finally:
                shutdown.set()
                for connection in server.connections:
                    connection.abort("the test is over")
                for client in served.clients:
                    client.close()


def _settings(fields: dict[str, Any], *, fake: bool) -> Settings:
    model = fields.pop("model", None) or (__file__ if fake else model_path())
    own = {"port": 0} if fake else {"port": 0, "context": 512, "threads": 1}  # threads wait for each other when busy
    chosen = {} if fake else read_settings(["serve", *FLAGS], {}).model_dump(exclude_unset=True)
    return Settings.model_construct(**{**own, **fields, **chosen, "model": Path(model)})


def _limits(settings: Settings) -> ServerLimits:
    return ServerLimits(
        connections=connections_for(settings.slots, settings.queue_limit),
        grace=settings.grace,
        write_timeout=2.0,
        close_timeout=2.0,
    )


def post(request_id: str, path: str, **body: Any) -> bytes:
    """Return the bytes of a POST."""
    data = orjson.dumps(body)
    head = (
        f"POST {path} HTTP/1.1\r\nhost: localhost\r\nx-request-id: {request_id}\r\ncontent-length: {len(data)}\r\n\r\n"
    )
    return head.encode() + data


def by(client: str, request: bytes) -> bytes:
    """Return a request with the credentials of a client."""
    return request.replace(b"host: localhost\r\n", b"host: localhost\r\nauthorization: Bearer %b\r\n" % client.encode())


def completion(request_id: str, path: str = "/v1/completions", **body: Any) -> bytes:
    """Return the bytes of a completion request without speculation, which depends on measured times."""
    asked = {"prompt": "Once upon a time", "ignore_eos": True, "temperature": 0, "speculative": False}
    return post(request_id, path, **{**asked, **body})


async def ask(served: Served, **body: Any) -> dict[str, Any]:
    """Send one request that must succeed; return its content."""
    decoded: dict[str, Any] = await served.content(completion("ask", **body))
    return decoded
