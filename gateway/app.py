"""The application: which path goes where, and what lies around all of them."""

from dataclasses import dataclass

from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import ASGIApp

from engine import Engine
from gateway.edge.limits import RequestLimits
from gateway.edge.origin import OriginGuard
from gateway.edge.problems import EXCEPTION_HANDLERS
from gateway.edge.scope import RequestScope
from gateway.routes.body import BodyReader
from gateway.routes.completions import Completions
from gateway.routes.generate import PATH as GENERATE
from gateway.routes.generate import FailureEnvelope, Generate
from gateway.routes.generations import Generations
from gateway.routes.health import Health
from gateway.routes.models import Models
from gateway.routes.slots import Slots
from gateway.settings import Settings


@dataclass(frozen=True, slots=True)
class Gateway:
    """The application and what its server has to tell it.

    Attributes:
        app: the ASGI application.
        health: is told when the server drains.
    """

    app: ASGIApp
    health: Health


def create_gateway(engine: Engine, settings: Settings) -> Gateway:
    """The whole HTTP interface of one engine."""
    bodies = BodyReader()
    models = Models(engine, settings.served_name, settings.model)
    generations = Generations(engine, queue_timeout=settings.queue_timeout, patience=settings.client_patience)
    health = Health(engine)
    routes = [
        Route("/v1/completions", Completions(bodies, models, generations).create, methods=["POST"]),
        Route(GENERATE, Generate(bodies, generations).create, methods=["POST"]),
        Route("/v1/models", models.list),
        Route("/v1/models/{id:path}", models.get),
        Route("/health", health.get),
        Route("/slots", Slots(engine).list),
    ]
    app = OriginGuard(Starlette(routes=routes, exception_handlers=EXCEPTION_HANDLERS), settings.allow_origin)
    limits = RequestLimits(body=settings.body_limit, request_timeout=settings.request_timeout)
    return Gateway(FailureEnvelope(RequestScope(app, limits)), health)
