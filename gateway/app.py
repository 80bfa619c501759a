"""The ASGI application: its parts, APIs and middleware."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

import anyio
from starlette.types import ASGIApp

from gateway import __version__
from gateway.apis.anthropic.api import anthropic_api
from gateway.apis.endpoint import Api
from gateway.apis.generate.api import generate_api
from gateway.apis.llama_server.api import llama_server_api, metrics_api
from gateway.apis.llama_server.health import HealthEndpoints
from gateway.apis.llama_server.metrics import MetricsEndpoints
from gateway.apis.llama_server.openai.endpoints import like_llama_server
from gateway.apis.llama_server.options import RouteOptions
from gateway.apis.ollama.api import ollama_api
from gateway.apis.openai.api import openai_api
from gateway.apis.openai.responses.background import BackgroundResponses
from gateway.apis.openai.stores import Stores, stores_in_memory
from gateway.apis.rerank.api import cohere_api, rerank_api
from gateway.apis.routing import Router, conventions_for
from gateway.keys.ring import KeyRing
from gateway.limits.headers import RateLimitHeaders
from gateway.limits.limiter import Limiter
from gateway.limits.memory_limiter import MemoryLimiter
from gateway.metrics.adapters import AdapterCollector
from gateway.metrics.engines import EngineCollector
from gateway.metrics.exposition import Exposition
from gateway.metrics.llama_cpp import LlamaCppCollector
from gateway.metrics.requests import RequestMetrics
from gateway.metrics.server import CountedResponses, ServerMetrics
from gateway.middleware.authentication import Authenticator, no_authentication
from gateway.middleware.body_budget import BodyBudget
from gateway.middleware.limits import RequestLimits
from gateway.middleware.origin import OpenPreflight, OriginGuard, ReadableResponses
from gateway.middleware.request_scope import RequestScope
from gateway.middleware.streams.resumable import ResumableStreams, StreamLimits
from gateway.middleware.streams.silence import Silences
from gateway.openapi.endpoint import Description
from gateway.preparation.preparer import InlinePreparer, Preparer
from gateway.pulls.pulls import PullParts, Pulls
from gateway.registry import Serving, create_model, create_models
from gateway.server.lag import LoopClock
from gateway.serving.models import Models
from gateway.serving.prefixes import HeldPrefixes
from gateway.serving.records import RecordObserver
from gateway.serving.sources import EngineSource
from gateway.settings import Settings
from gateway.stores import OpenStores, bounds_of
from gateway.tracing.journal import Journal, SpanWriter
from gateway.usage.writer import UsageWriter


@dataclass(frozen=True, slots=True, kw_only=True)
class Equipment:
    """Parts of the gateway that are opened before it. Each has a default that does without."""

    stores: OpenStores = field(default_factory=OpenStores)
    """Keys, limits, usage and responses."""
    preparer: Preparer | None = None
    """Prepares requests; unset to prepare them in this process."""
    clock: LoopClock = field(default_factory=LoopClock)
    """Measures the event loop's lag and the time of clients. It runs while the server serves."""
    spans: SpanWriter | None = None
    """Makes the spans of requests; unset if there are no traces."""
    pulls: PullParts | None = None
    """Lets clients pull models, if it is given."""
    prefixes: HeldPrefixes | None = None
    """Reports the held prefixes to this process; unset to report them at /prefixes, if the settings have a secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
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
    stores: Stores
    """Responses and conversations; open while the application serves."""
    streams: ResumableStreams
    """Streams that outlive their clients; open while the application serves."""
    silences: Silences
    """Ends the silences of streams; open while the application serves."""
    observers: list[RecordObserver]
    """Observers of the records of all requests for a model."""
    metrics_app: ASGIApp
    """The ASGI application of a port for metrics alone."""
    limiter: Limiter
    """Limits of all keys."""
    usage: UsageWriter | None
    """Stores the usage of requests; unset without a store."""
    keys: KeyRing | None
    """API keys that requests need; unset if they need none. Open while the application serves."""
    pulls: Pulls | None
    """Models that clients pull; unset if they may not. Open while the application serves."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Restore the budgets, then follow the keys, store usage and run background responses inside the context.

        Raises:
            StorageError: the usage store cannot be used.
        """
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.limiter.open())
            if self.usage is not None:
                await self.limiter.restore(self.usage.store.charged)
            optional = (part for part in (self.usage, self.keys, self.pulls) if part is not None)
            for part in (*optional, self.stores, self.background, self.streams, self.silences):
                await stack.enter_async_context(part.open())
            yield

    async def settled(self) -> None:
        """Wait until the charges and the usage of the requests that have ended are stored, or cannot be for now."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.limiter.settled)
            if self.usage is not None:
                tasks.start_soon(self.usage.stored)


def create_gateway(
    engines: Mapping[str, EngineSource], settings: Settings, equipment: Equipment | None = None
) -> Gateway:
    """Return the application.

    Args:
        engines: sources of the engines, by the names of the models in the settings.
        settings: configure models, APIs, limits and middleware.
        equipment: parts that are opened before; None takes the defaults.
    """
    equipment = equipment or Equipment()
    opened, parts = equipment.stores, _Parts(settings, equipment)
    journal = Journal(equipment.spans, keeps_content=settings.log_content)
    limiter = opened.limiter or MemoryLimiter()
    writers = [] if opened.usage is None else [opened.usage.observe]
    observers: list[RecordObserver] = [journal.record, *writers]
    shown = None if settings.prefix_secret is None else HeldPrefixes(settings.prefix_secret.encode())
    serving = Serving(parts.preparer, observers, limiter, equipment.prefixes or shown)
    models = create_models(engines, settings, serving)
    make = partial(create_model, settings=settings, serving=serving)
    pulls = None if equipment.pulls is None else Pulls(models, equipment.pulls, settings, make)
    health = HealthEndpoints(models, __version__, lag=lambda: equipment.clock.lag)
    requests = RequestMetrics(model.name for model in models.named)
    llama_cpp = LlamaCppCollector(models.all)
    observers += [requests.observe, llama_cpp.observe]
    server = ServerMetrics(lag=lambda: equipment.clock.lag, draining=lambda: health.draining)
    exposition = Exposition([requests, EngineCollector(models.all), AdapterCollector(models.all), server, llama_cpp])
    metrics = MetricsEndpoints(exposition, allowed=not settings.no_metrics)
    stores = opened.responses or stores_in_memory(bounds_of(settings))
    background, apis = create_apis(models, settings, stores, health, metrics, parts.streams, shown, pulls)
    app = CountedResponses(parts.app(apis, limiter, journal, opened.keys), server.responses)
    metrics_app = parts.app((metrics_api(MetricsEndpoints(exposition), shown),), limiter, journal, None)
    return Gateway(
        app=app,
        apis=apis,
        models=models,
        health=health,
        background=background,
        stores=stores,
        streams=parts.streams,
        silences=parts.silences,
        observers=observers,
        metrics_app=metrics_app,
        limiter=limiter,
        usage=opened.usage,
        keys=opened.keys,
        pulls=pulls,
    )


def create_apis(
    models: Models,
    settings: Settings,
    stores: Stores,
    health: HealthEndpoints,
    metrics: MetricsEndpoints,
    streams: ResumableStreams,
    prefixes: HeldPrefixes | None,
    pulls: Pulls | None,
) -> tuple[BackgroundResponses, tuple[Api, ...]]:
    """Return all APIs, and the background responses of one of them."""
    background = BackgroundResponses(
        stores.responses,
        timeout=settings.request_timeout,
        max_per_owner=settings.background_responses,
        max_bytes=settings.stored_bytes // 4,
    )
    options = RouteOptions(
        slots=not settings.no_slots,
        metrics=not settings.no_metrics,
        props=settings.props,
        build=f"llama-gateway {__version__}",
        save_path=settings.slot_save_path,
    )
    shown = metrics if settings.metrics_port is None else None
    openai = openai_api(models, stores, background)
    variant = like_llama_server(openai, models, verbose=settings.log_level == "debug")
    own_api = llama_server_api(models, health, shown, variant, streams, options, prefixes)
    like = settings.answers_like == "llama-server"
    anthropic = anthropic_api(models, like_llama_server=like)
    chats = (variant if like else openai, anthropic, ollama_api(models, pulls), generate_api(models))
    rankers = (rerank_api(models, like_llama_server=like), cohere_api(models))
    described = (*chats, own_api, *rankers)
    return background, (*described, Description(described, strict=settings.strict_fields).api)


class _Parts:
    """Parts that the applications of both ports share."""

    def __init__(self, settings: Settings, equipment: Equipment) -> None:
        self._settings = settings
        self._clock = equipment.clock
        self.preparer = equipment.preparer or InlinePreparer(strict=settings.strict_fields)
        """Prepares requests."""
        self.streams = ResumableStreams(
            StreamLimits(
                timeout=settings.request_timeout,
                most=settings.resumable_streams,
                running=max(1, min(settings.resumable_streams // 4, settings.background_responses)),
            )
        )
        """Streams that outlive their clients."""
        self.silences = Silences()
        """Ends the silences of streams; open while the application serves."""

    def app(self, apis: tuple[Api, ...], limiter: Limiter, journal: Journal, keys: KeyRing | None) -> ASGIApp:
        """Return the ASGI application of some APIs: their routes, wrapped in the middleware."""
        settings = self._settings
        app: ASGIApp = OriginGuard(Router(apis, self.preparer, self.streams), settings.allow_origin)
        if settings.answers_like == "llama-server":
            app = OpenPreflight(app, settings.allow_origin)
        scoped = RequestScope(
            RateLimitHeaders(app, limiter),
            RequestLimits(body=settings.body_limit, request_timeout=settings.request_timeout),
            conventions_for=conventions_for(apis),
            authenticate=no_authentication if keys is None else Authenticator(keys.find, settings.open_path),
            partition_cache=settings.partition_cache,
            budget=BodyBudget(settings.body_budget, settings.body_limit),
            clock=self._clock.time,
            observer=journal,
            silences=self.silences,
        )
        return ReadableResponses(scoped, settings.allow_origin)
