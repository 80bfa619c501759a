"""The ASGI application: APIs, middleware, and the function that serves it."""

import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
from starlette.applications import Starlette
from starlette.types import ASGIApp

from engine import Engine
from gateway.apis.endpoint import Api
from gateway.apis.generate.api import generate_api
from gateway.apis.llama_server.api import llama_server_api, metrics_api
from gateway.apis.llama_server.health import HealthEndpoints
from gateway.apis.llama_server.metrics import MetricsEndpoints
from gateway.apis.openai.api import openai_api
from gateway.apis.openai.responses.background import BackgroundResponses
from gateway.apis.openai.responses.store.store import ResponseStore
from gateway.apis.routing import encoder_for, routes
from gateway.hub.reference import HubReference
from gateway.keys.ring import KeyRing
from gateway.limits.headers import RateLimitHeaders
from gateway.limits.limiter import Limiter
from gateway.metrics.engines import EngineCollector
from gateway.metrics.exposition import Exposition
from gateway.metrics.requests import RequestMetrics
from gateway.metrics.server import CountedResponses, ServerMetrics
from gateway.middleware.authentication import Authenticator, no_authentication
from gateway.middleware.body_budget import BodyBudget
from gateway.middleware.exception_handlers import EXCEPTION_HANDLERS
from gateway.middleware.limits import RequestLimits
from gateway.middleware.origin import OriginGuard, ReadableResponses
from gateway.middleware.request_scope import RequestScope
from gateway.openapi.endpoint import Description
from gateway.preparation.jobs import modules_of
from gateway.preparation.pooled import PooledPreparer
from gateway.preparation.preparer import InlinePreparer, Preparer
from gateway.preparation.workers.pool import WorkerPool
from gateway.server.aside import serving_aside
from gateway.server.capacity import connections_for
from gateway.server.lag import LoopClock, running
from gateway.server.limits import ServerLimits
from gateway.server.server import ContextSource, serve
from gateway.serving.adapters import Adapter, Adapters
from gateway.serving.generations import Generations
from gateway.serving.models import Models, Served, Task, names_of
from gateway.serving.prompts import ChatPrompts
from gateway.serving.recorder import Recorder
from gateway.serving.records import RecordObserver
from gateway.settings import Settings
from gateway.settings.adapters import AdapterFile
from gateway.tracing.journal import Journal, SpanWriter
from gateway.tracing.opening import open_traces
from gateway.usage.store import UsageStore
from gateway.usage.writer import UsageWriter


@dataclass(frozen=True, slots=True)
class Gateway:
    """The application and the objects that its server also needs."""

    app: ASGIApp
    """The ASGI application."""
    apis: tuple[Api, ...]
    """APIs of the application."""
    models: Models
    """Models that the application serves."""
    health: HealthEndpoints
    """Health endpoint; reports that the server is stopping once `drain` is called."""
    background: BackgroundResponses
    """Background responses; open while the application serves."""
    observers: list[RecordObserver]
    """Observers of the records of all requests for a model."""
    metrics_app: ASGIApp
    """The ASGI application of a port for metrics alone."""
    limiter: Limiter
    """Limits of all keys."""
    usage: UsageWriter | None
    """Stores the usage of requests; unset without a store."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Restore the budgets, then store usage and run background responses inside the context.

        Raises:
            StorageError: the usage store cannot be used.
        """
        async with AsyncExitStack() as stack:
            if self.usage is not None:
                await self.limiter.restore(self.usage.store.charged)
                await stack.enter_async_context(self.usage.open())
            await stack.enter_async_context(self.background.open())
            yield


def create_gateway(
    engine: Engine,
    settings: Settings,
    embedder: Engine | None = None,
    *,
    keys: KeyRing | None = None,
    usage: UsageStore | None = None,
    preparer: Preparer | None = None,
    clock: LoopClock | None = None,
    spans: SpanWriter | None = None,
) -> Gateway:
    """Return the application for one engine, or for two if embeddings have a model of their own.

    Args:
        engine: runs `settings.model`.
        settings: configure APIs, limits and middleware.
        embedder: runs `settings.embedding_model`; unset if `engine` also computes embeddings.
        keys: API keys that requests need; without them, no request needs one.
        usage: keeps the usage of requests, if it is given.
        preparer: prepares requests; None prepares them in this process.
        clock: measures the event loop's lag and the time of clients; None makes one that does not run.
        spans: makes the spans of requests; unset if there are no traces.
    """
    preparer = preparer or InlinePreparer(strict=settings.strict_fields)
    clock = clock or LoopClock()
    journal = Journal(spans, keeps_content=settings.log_content)
    limiter, writer = Limiter(), None if usage is None else UsageWriter(usage)
    observers: list[RecordObserver] = [journal.record, *([] if writer is None else [writer.observe])]
    models = create_models(engine, settings, embedder, preparer, observers, limiter)
    health = HealthEndpoints(models, lag=lambda: clock.lag)
    requests = RequestMetrics(served.name for served in models.named)
    observers.append(requests.observe)
    server = ServerMetrics(lag=lambda: clock.lag, draining=lambda: health.draining)
    metrics = MetricsEndpoints(Exposition([requests, EngineCollector(models.all), server]))
    store = ResponseStore(
        max_responses=settings.stored_responses,
        max_bytes=settings.stored_bytes,
        max_recalled_bytes=settings.body_limit,
    )
    background = BackgroundResponses(
        store,
        timeout=settings.request_timeout,
        max_per_owner=settings.background_responses,
        max_bytes=settings.stored_bytes // 4,
    )
    own_api = llama_server_api(models, health, metrics if settings.metrics_port is None else None)
    described = (openai_api(models, store, background), generate_api(models), own_api)
    apis = (*described, Description(described, strict=settings.strict_fields).api)
    app = CountedResponses(create_app(apis, settings, keys, limiter, preparer, clock, journal), server)
    metrics_app = create_app((metrics_api(metrics),), settings, None, limiter, preparer, clock, journal)
    return Gateway(app, apis, models, health, background, observers, metrics_app, limiter, writer)


def create_app(
    apis: tuple[Api, ...],
    settings: Settings,
    keys: KeyRing | None,
    limiter: Limiter,
    preparer: Preparer,
    clock: LoopClock,
    journal: Journal,
) -> ASGIApp:
    """Return the ASGI application: the routes of all APIs, wrapped in the middleware."""
    app = OriginGuard(
        Starlette(routes=routes(apis, preparer), exception_handlers=EXCEPTION_HANDLERS), settings.allow_origin
    )
    scoped = RequestScope(
        RateLimitHeaders(app, limiter),
        RequestLimits(body=settings.body_limit, request_timeout=settings.request_timeout),
        encoder_for=encoder_for(apis),
        authenticate=no_authentication if keys is None else Authenticator(keys.find, settings.open_path),
        partition_cache=settings.partition_cache,
        budget=BodyBudget(settings.body_budget, settings.body_limit),
        clock=clock.time,
        observer=journal,
    )
    return ReadableResponses(scoped, settings.allow_origin)


def create_models(
    engine: Engine,
    settings: Settings,
    embedder: Engine | None,
    preparer: Preparer,
    observers: Sequence[RecordObserver],
    limiter: Limiter,
) -> Models:
    """Return the registry of the models that the settings name. Observers see the record of every request to them."""

    def served(
        engine: Engine, name: str, place: Path | HubReference, *tasks: Task, lora: Sequence[AdapterFile] = ()
    ) -> Served:
        recorder = Recorder(name, observers)
        adapters = Adapters([Adapter(id_, *adapter) for id_, adapter in enumerate(lora)], names_of(name, place))
        return Served(
            engine,
            name,
            place,
            tasks=frozenset(tasks),
            prompts=ChatPrompts(engine, settings.chat_template, preparer, parse_special=settings.parse_special),
            generations=Generations(
                engine,
                recorder,
                limiter,
                max_tokens=settings.max_tokens,
                queue_timeout=settings.queue_timeout,
                patience=settings.client_patience,
                adapters=adapters.chosen,
            ),
            recorder=recorder,
            limiter=limiter,
            adapters=adapters,
        )

    main = served(engine, settings.served_name, settings.model, *Task, lora=settings.adapters)
    adapted = [main.adapted(one, Recorder(f"{main.name}:{one.name}", observers)) for one in main.adapters.all]
    if embedder is None or settings.embedding_model is None:
        return Models([main], dict.fromkeys(Task, main), adapted)
    embeds = served(embedder, settings.embedding_model.stem, settings.embedding_model, Task.EMBED, Task.TOKENIZE)
    return Models([main, embeds], {**dict.fromkeys(Task, main), Task.EMBED: embeds}, adapted)


@asynccontextmanager
async def open_gateway(
    engine: Engine,
    settings: Settings,
    embedder: Engine | None = None,
    *,
    keys: KeyRing | None = None,
    usage: UsageStore | None = None,
    clock: LoopClock | None = None,
) -> AsyncIterator[Gateway]:
    """Create the application with worker processes. They and the gateway run inside the context.

    The arguments are those of `create_gateway`.
    """
    pool = WorkerPool()
    preparer = PooledPreparer(pool, strict=settings.strict_fields)
    async with open_traces(settings.traces) as spans:
        gateway = create_gateway(
            engine, settings, embedder, keys=keys, usage=usage, preparer=preparer, clock=clock, spans=spans
        )
        endpoints = (endpoint for api in gateway.apis for endpoint in api.endpoints)
        async with pool.open(modules_of(endpoints)), gateway.running(), anyio.create_task_group() as tasks:
            for served in gateway.models.all:
                tasks.start_soon(served.prompts.check)
            yield gateway
            tasks.cancel_scope.cancel()


async def serve_engines(  # noqa: PLR0913 - what the main program has opened
    settings: Settings,
    sockets: list[socket.socket],
    shutdown: anyio.Event,
    clock: LoopClock,
    engine: Engine,
    embedder: Engine | None = None,
    *,
    tls: ContextSource | None = None,
    keys: KeyRing | None = None,
    usage: UsageStore | None = None,
    metrics_sockets: Sequence[socket.socket] = (),
) -> None:
    """Serve until `shutdown` is set, then wait for open requests as `serve` does.

    Args:
        settings: configure the application and the limits of the server.
        sockets: listening sockets.
        shutdown: starts the graceful stop once set.
        clock: measures the event loop's lag; it runs while the server serves.
        engine: runs `settings.model`.
        embedder: runs `settings.embedding_model`; unset if `engine` also computes embeddings.
        tls: returns the TLS context for a new connection; None serves without TLS.
        keys: API keys that requests need; without them, no request needs one.
        usage: keeps the usage of requests, if it is given.
        metrics_sockets: listening sockets of the port for metrics alone.
    """
    limits = ServerLimits(connections=connections_for(settings.slots, settings.queue_limit), grace=settings.grace)
    async with (
        open_gateway(engine, settings, embedder, keys=keys, usage=usage, clock=clock) as gateway,
        running(clock),
        serving_aside(gateway.metrics_app, metrics_sockets, clock.time),
    ):
        await serve(
            gateway.app,
            sockets,
            limits,
            shutdown=shutdown,
            on_draining=gateway.health.drain,
            clock=clock.time,
            tls=tls,
        )
