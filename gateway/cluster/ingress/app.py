"""The ASGI application of the ingress: requests for models are forwarded, those for the whole cluster answered here."""

from collections.abc import Callable, Mapping
from http import HTTPStatus

from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from engine.errors import Unavailable
from gateway.apis.llama_server.health import HealthEndpoints
from gateway.apis.llama_server.metrics import MetricsEndpoints
from gateway.apis.openai.stores import stores_in_memory
from gateway.apis.routing import conventions_for
from gateway.app import create_apis
from gateway.cluster.ingress.forwarding import Forwarder, Place, anywhere
from gateway.cluster.ingress.gathering import gather, labelled, merged
from gateway.cluster.ingress.names import ModelNames
from gateway.cluster.ingress.replicas import Replicas
from gateway.cluster.request import ANYWHERE, ForwardedRequest, Placement, forwarded
from gateway.metrics.exposition import Exposition
from gateway.middleware.body_budget import BodyBudget
from gateway.middleware.caller import caller_of
from gateway.middleware.conventions import Conventions
from gateway.middleware.limits import RequestLimits
from gateway.middleware.request_scope import RequestScope
from gateway.middleware.resumable import ResumableStreams, StreamLimits
from gateway.serving.models import Models
from gateway.settings import Settings

LISTS = frozenset({"/v1/models", "/models", "/api/tags", "/api/ps"})
"""Paths whose answers list the models of a server."""
_UP = """\
# HELP llama_gateway_replica_up 1 if the replica has answered; otherwise its metrics are missing here.
# TYPE llama_gateway_replica_up gauge
"""
HEALTH = frozenset({"/health", "/v1/health", "/readyz"})
"""Paths of the health checks."""


def create_ingress(settings: Settings, replicas: Mapping[str, Replicas], place: Place = anywhere) -> ASGIApp:
    """Return the application.

    Args:
        settings: name all models, and limit each request.
        replicas: replicas of the models, by name.
        place: chooses the replica for a request.
    """
    names = ModelNames(settings.served)
    forwarder = Forwarder(
        replicas,
        names.find,
        queue_limit=settings.queue_limit,
        queue_timeout=settings.queue_timeout,
        place=place,
    )
    return RequestScope(
        Ingress(replicas, forwarder),
        RequestLimits(body=settings.body_limit, request_timeout=settings.request_timeout),
        conventions_for=_conventions(settings),
        budget=BodyBudget(settings.body_budget, settings.body_limit),
    )


class Ingress:
    """ASGI application inside `RequestScope`."""

    def __init__(self, replicas: Mapping[str, Replicas], forwarder: Forwarder) -> None:
        self._replicas = replicas
        self._forwarder = forwarder

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        answer = await self._answer(scope)
        await (answer or self._forwarder)(scope, receive, send)

    async def _answer(self, scope: Scope) -> Response | None:
        """Return the answer for the whole cluster, or None if one model answers."""
        path, caller = scope["path"], caller_of(scope)
        if scope["method"] not in {"GET", "HEAD"}:
            return None
        if path == "/livez":
            return JSONResponse({"status": "ok"})
        if path in HEALTH:
            return self._health()
        request = forwarded(scope, b"", caller.request_id)
        if path == "/metrics":
            return await self._metrics(request)
        if path in LISTS and len(self._replicas) > 1:
            return await self._list(request)
        return None

    def _health(self) -> Response:
        counts = {model: _ready(replicas) for model, replicas in self._replicas.items()}
        if waiting := [model for model, ready in counts.items() if not ready]:
            detail = f"No replica of {waiting[0]} is ready."
            return JSONResponse({"status": "loading", "detail": detail}, HTTPStatus.SERVICE_UNAVAILABLE)
        return JSONResponse({"status": "ok", "replicas": counts})

    async def _metrics(self, request: ForwardedRequest) -> Response:
        every = [(some, Placement(id_, only=True)) for some in self._replicas.values() for id_ in some.reports]
        plain = {**request.scope, "headers": [(k, v) for k, v in request.scope["headers"] if k != b"accept"]}
        answers = await gather(every, ForwardedRequest(plain, b""))
        up = dict.fromkeys((placement.replica for _, placement in every), 0) | {one.replica: 1 for one in answers}
        if refused := [answer for answer in answers if not answer.good]:
            return Response(refused[0].body, refused[0].head["status"], media_type="application/json")
        pages = {answer.replica: answer.body.decode() for answer in answers}
        return PlainTextResponse(_UP + "".join(_up(*one) for one in up.items()) + labelled(pages))

    async def _list(self, request: ForwardedRequest) -> Response:
        answers = await gather([(some, ANYWHERE) for some in self._replicas.values()], request)
        if not answers:
            raise Unavailable("No replica has answered.", code="no_replica")
        if refused := [answer for answer in answers if not answer.good]:
            return Response(refused[0].body, refused[0].head["status"], media_type="application/json")
        return Response(merged([answer.body for answer in answers]), media_type="application/json")


def _up(replica: str, answered: int) -> str:
    return f'llama_gateway_replica_up{{replica="{replica}"}} {answered}\n'


def _ready(replicas: Replicas) -> int:
    return sum(bool(report.get("ready", 1.0)) for report in replicas.reports.values())


def _conventions(settings: Settings) -> Callable[[str], Conventions]:
    """Return the conventions of each path. The APIs have no models: they only name their paths and errors."""
    none = Models((), {})
    streams = ResumableStreams(StreamLimits(timeout=settings.request_timeout, most=1, running=1))
    stores = stores_in_memory(max_entries=0, max_bytes=0, max_recalled_bytes=0)
    metrics = MetricsEndpoints(Exposition(()))
    _, apis = create_apis(none, settings, stores, HealthEndpoints(none), metrics, streams, None, None)
    return conventions_for(apis)
