"""The application: its routes and middleware, and how it is served."""

import socket
from dataclasses import dataclass

import anyio
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import ASGIApp

from engine import Engine
from gateway.apis.fields.read import BodyReader
from gateway.apis.generate import PATH as GENERATE
from gateway.apis.generate.endpoint import Generate
from gateway.apis.generate.errors import FailureEnvelope
from gateway.apis.llama_server.apply_template import ApplyTemplate
from gateway.apis.llama_server.health import Health
from gateway.apis.llama_server.slots import Slots
from gateway.apis.llama_server.tokenize import Vocabulary
from gateway.apis.openai.chat.endpoint import Chat
from gateway.apis.openai.completions.endpoint import Completions
from gateway.apis.openai.embeddings.endpoint import Embeddings
from gateway.apis.openai.responses.background import BackgroundResponses
from gateway.apis.openai.responses.endpoint import Responses
from gateway.apis.openai.responses.store import ResponseStore
from gateway.apis.openai.responses.stored import StoredResponses
from gateway.middleware.errors import EXCEPTION_HANDLERS
from gateway.middleware.limits import RequestLimits, ServerLimits
from gateway.middleware.origin import OriginGuard
from gateway.middleware.request_scope import RequestScope
from gateway.openapi.endpoint import Description
from gateway.server.capacity import connections_for
from gateway.server.server import serve
from gateway.serving.generations import Generations
from gateway.serving.models import Models, ServedModel
from gateway.serving.prompts import ChatPrompts
from gateway.settings import Settings


@dataclass(frozen=True, slots=True)
class Gateway:
    """The application and what its server has to tell it.

    Attributes:
        app: the ASGI application.
        health: is told when the server drains.
        background: must be open while the application serves.
    """

    app: ASGIApp
    health: Health
    background: BackgroundResponses


def create_gateway(engine: Engine, settings: Settings, embedder: Engine | None = None) -> Gateway:
    """The whole HTTP interface of one engine, or of two: `embedder` runs the model of `settings.embedding_model`."""
    bodies = BodyReader(strict=settings.strict_fields)
    models = _models(engine, settings, embedder)
    vocabulary = Vocabulary(bodies, models)
    generations = Generations(
        engine,
        queue_timeout=settings.queue_timeout,
        patience=settings.client_patience,
        partition=settings.partition_cache,
    )
    health = Health([engine] if embedder is None else [engine, embedder])
    prompts = ChatPrompts(engine, settings.chat_template)
    chat = Chat(engine, bodies, models, prompts, generations)
    templates = ApplyTemplate(engine, bodies, models, prompts)
    store = ResponseStore(
        most=settings.stored_responses, most_bytes=settings.stored_bytes, most_recalled=settings.body_limit
    )
    background = BackgroundResponses(generations, store, timeout=settings.request_timeout)
    responses = Responses(engine, bodies, models, prompts, generations, store, background)
    stored = StoredResponses(store, background)
    routes = [
        Route("/v1/completions", Completions(engine, bodies, models, generations).create, methods=["POST"]),
        Route(GENERATE, Generate(engine, bodies, generations).create, methods=["POST"]),
        Route("/v1/chat/completions", chat.create, methods=["POST"]),
        Route("/v1/chat/completions/input_tokens", templates.count, methods=["POST"]),
        Route("/apply-template", templates.apply, methods=["POST"]),
        Route("/v1/embeddings", Embeddings(bodies, models).create, methods=["POST"]),
        Route("/tokenize", vocabulary.tokenize, methods=["POST"]),
        Route("/detokenize", vocabulary.detokenize, methods=["POST"]),
        Route("/v1/models", models.list),
        Route("/v1/models/{id:path}", models.get),
        Route("/v1/responses", responses.create, methods=["POST"]),
        Route("/v1/responses/input_tokens", responses.count, methods=["POST"]),
        Route("/v1/responses/{id}", stored.serve, methods=["GET", "DELETE"]),
        Route("/v1/responses/{id}/cancel", stored.cancel, methods=["POST"]),
        Route("/v1/responses/{id}/input_items", stored.list_inputs, methods=["GET"]),
        Route("/health", health.get),
        Route("/slots", Slots(engine).list),
        Route("/openapi.json", Description(strict=settings.strict_fields).get),
    ]
    app = OriginGuard(Starlette(routes=routes, exception_handlers=EXCEPTION_HANDLERS), settings.allow_origin)
    limits = RequestLimits(body=settings.body_limit, request_timeout=settings.request_timeout)
    return Gateway(FailureEnvelope(RequestScope(app, limits)), health, background)


def _models(engine: Engine, settings: Settings, embedder: Engine | None) -> Models:
    main = ServedModel(engine, settings.served_name, settings.model)
    if embedder is None or settings.embedding_model is None:
        return Models(main)
    return Models(main, ServedModel(embedder, settings.embedding_model.stem, settings.embedding_model))


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
