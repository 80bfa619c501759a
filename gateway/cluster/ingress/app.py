"""The ASGI application of the ingress: requests for models are forwarded, those for the whole cluster answered here."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus

from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from engine.errors import Unavailable
from gateway.apis.endpoint import Api
from gateway.apis.routing import conventions_for
from gateway.cluster.ingress.figures import own_metrics
from gateway.cluster.ingress.forwarding import Forwarder
from gateway.cluster.ingress.gathering import gather, labelled, merged
from gateway.cluster.ingress.log import IngressLog
from gateway.cluster.ingress.names import ModelNames
from gateway.cluster.ingress.placing import Placer
from gateway.cluster.ingress.replicas import Replicas
from gateway.cluster.request import ANYWHERE, ForwardedRequest, Placement, forwarded
from gateway.metrics.exposition import Exposition
from gateway.middleware.authentication import Authenticate, no_authentication
from gateway.middleware.body_budget import BodyBudget
from gateway.middleware.caller import caller_of
from gateway.middleware.exchange import PROBES
from gateway.middleware.limits import RequestLimits
from gateway.middleware.origin import ReadableResponses
from gateway.middleware.request_scope import RequestScope
from gateway.settings import Settings

LISTS = frozenset({"/v1/models", "/models", "/api/tags", "/api/ps"})
"""Paths whose answers list the models of a server."""
INGRESS = "ingress"
"""Value of the label `replica` for what no replica counts."""


def create_ingress(
    settings: Settings,
    replicas: Mapping[str, Replicas],
    apis: Sequence[Api],
    placer: Placer,
    authenticate: Authenticate = no_authentication,
) -> ASGIApp:
    """Return the application.

    Args:
        settings: name all models, and limit each request.
        replicas: replicas of the models, by name.
        apis: APIs of the replicas.
        placer: chooses the replicas for requests.
        authenticate: returns the API key of a request, or refuses it before its body is read.
    """
    names, log = ModelNames(settings.served), IngressLog(writes=settings.access_log == "on")
    forwarder = Forwarder(
        replicas,
        names.find,
        places={one.name: one.settings.slots + settings.queue_limit for one in settings.served},
        queue_limit=settings.queue_limit,
        queue_timeout=settings.queue_timeout,
        placer=placer,
        log=log,
    )
    scoped = RequestScope(
        Ingress(replicas, forwarder, placer, Exposition([log.responses])),
        RequestLimits(
            body=settings.body_limit,
            memory_timeout=0,  # Ray reads on while a body waits, without a limit
            request_timeout=settings.request_timeout,
        ),
        conventions_for=conventions_for(apis),
        authenticate=authenticate,
        partition_cache=settings.partition_cache,
        budget=BodyBudget(settings.body_budget, settings.body_limit),
        observer=log,
    )
    return ReadableResponses(scoped, settings.allow_origin)


class Ingress:
    """ASGI application inside `RequestScope`."""

    def __init__(
        self, replicas: Mapping[str, Replicas], forwarder: Forwarder, placer: Placer, counted: Exposition
    ) -> None:
        self._replicas = replicas
        self._forwarder = forwarder
        self._placer = placer
        self._counted = counted

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        answer = await self._answer(scope)
        await (answer or self._forwarder)(scope, receive, send)

    async def _answer(self, scope: Scope) -> Response | None:
        """Return the answer for the whole cluster, or None if one model answers."""
        path, caller = scope["path"], caller_of(scope)
        if scope["method"] not in {"GET", "HEAD"} and (scope["method"], path) != ("POST", "/ping"):
            return None
        if path == "/livez":
            return JSONResponse({"status": "ok"})
        if path in PROBES:
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
        pages[INGRESS] = self._counted.page("").text.decode()
        return PlainTextResponse(own_metrics(up, self._forwarder.waiting, self._placer.figures) + labelled(pages))

    async def _list(self, request: ForwardedRequest) -> Response:
        answers = await gather([(some, ANYWHERE) for some in self._replicas.values()], request)
        if not answers:
            raise Unavailable("No replica has answered.", code="no_replica")
        if refused := [answer for answer in answers if not answer.good]:
            return Response(refused[0].body, refused[0].head["status"], media_type="application/json")
        return Response(merged([answer.body for answer in answers]), media_type="application/json")


def _ready(replicas: Replicas) -> int:
    return sum(bool(report.get("ready", 1.0)) for report in replicas.reports.values())
