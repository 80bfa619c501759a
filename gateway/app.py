"""The application: its APIs and middleware, and how it is served."""

import socket
from dataclasses import dataclass
from pathlib import Path

import anyio
from starlette.applications import Starlette
from starlette.types import ASGIApp

from engine import Engine
from gateway.apis.endpoint import Api
from gateway.apis.fields.read import BodyReader
from gateway.apis.generate.api import generate_api
from gateway.apis.llama_server.api import llama_server_api
from gateway.apis.llama_server.health import HealthEndpoints
from gateway.apis.openai.api import openai_api
from gateway.apis.openai.responses.background import BackgroundResponses
from gateway.apis.openai.responses.store import ResponseStore
from gateway.apis.routing import encoder_for, routes
from gateway.middleware.exception_handlers import EXCEPTION_HANDLERS
from gateway.middleware.limits import RequestLimits
from gateway.middleware.origin import OriginGuard
from gateway.middleware.request_scope import RequestScope
from gateway.openapi.endpoint import Description
from gateway.server.capacity import connections_for
from gateway.server.limits import ServerLimits
from gateway.server.server import serve
from gateway.serving.generations import Generations
from gateway.serving.models import Models, Served, Task
from gateway.serving.prompts import ChatPrompts
from gateway.settings import Settings


@dataclass(frozen=True, slots=True)
class Gateway:
    """The application, and what its server needs besides."""

    app: ASGIApp
    """The ASGI application."""
    apis: tuple[Api, ...]
    """The APIs that it serves."""
    health: HealthEndpoints
    """Answers that the server is stopping, once it drains."""
    background: BackgroundResponses
    """Must be open while the application serves."""


def create_gateway(engine: Engine, settings: Settings, embedder: Engine | None = None) -> Gateway:
    """Return the HTTP interface of one engine, or of two: `embedder` runs the model of `settings.embedding_model`."""
    models = create_models(engine, settings, embedder)
    health = HealthEndpoints(models)
    store = ResponseStore(
        max_responses=settings.stored_responses,
        max_bytes=settings.stored_bytes,
        max_recalled_bytes=settings.body_limit,
    )
    background = BackgroundResponses(store, timeout=settings.request_timeout)
    described = (openai_api(models, store, background), generate_api(models), llama_server_api(models, health))
    apis = (*described, Description(described, strict=settings.strict_fields).api)
    return Gateway(create_app(apis, settings), apis, health, background)


def create_app(apis: tuple[Api, ...], settings: Settings) -> ASGIApp:
    """Return the ASGI application: the APIs, within the middleware of every request."""
    bodies = BodyReader(strict=settings.strict_fields)
    app = OriginGuard(
        Starlette(routes=routes(apis, bodies), exception_handlers=EXCEPTION_HANDLERS), settings.allow_origin
    )
    return RequestScope(
        app,
        RequestLimits(body=settings.body_limit, request_timeout=settings.request_timeout),
        encoder_for=encoder_for(apis),
        partition_cache=settings.partition_cache,
    )


def create_models(engine: Engine, settings: Settings, embedder: Engine | None) -> Models:
    """Return the registry of the models that the settings name."""

    def served(engine: Engine, name: str, file: Path, *tasks: Task) -> Served:
        return Served(
            engine,
            name,
            file,
            tasks=frozenset(tasks),
            prompts=ChatPrompts(engine, settings.chat_template),
            generations=Generations(engine, queue_timeout=settings.queue_timeout, patience=settings.client_patience),
        )

    main = served(engine, settings.served_name, settings.model, *Task)
    if embedder is None or settings.embedding_model is None:
        return Models([main], dict.fromkeys(Task, main))
    embeds = served(embedder, settings.embedding_model.stem, settings.embedding_model, Task.EMBED, Task.TOKENIZE)
    return Models([main, embeds], {**dict.fromkeys(Task, main), Task.EMBED: embeds})


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
    limits = ServerLimits(connections=connections_for(settings.slots, settings.queue_limit), grace=settings.grace)
    async with gateway.background.open():
        await serve(gateway.app, sockets, limits, shutdown=shutdown, on_draining=gateway.health.drain)
