"""Deployment of Ray Serve that takes all requests, and forwards them to the replicas of their models."""

from collections.abc import Mapping

from ray import serve
from ray.exceptions import RayError
from ray.serve.handle import DeploymentHandle
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from engine.logs import configure
from gateway.cluster.ingress.handle import HandledReplicas
from gateway.cluster.ingress.lifespan import WithLifespan
from gateway.cluster.ingress.opening import open_ingress
from gateway.middleware.request_id import HEADER, LOG_FIELDS
from gateway.settings import Settings


@serve.ingress()
class IngressReplica:
    """One ingress. It needs no model; two processes of its own read prompts."""

    def __init__(self, settings: Settings, handles: Mapping[str, DeploymentHandle], secret: bytes) -> None:
        """Create the application.

        Args:
            settings: name all models.
            handles: handles of the models' deployments, by the names of the models.
            secret: that of the hashes of prompts.
        """
        configure(settings.log_level, settings.log_format, LOG_FIELDS)
        self._settings = settings
        self._handles = handles
        self._secret = secret
        self._app: WithLifespan

    def __serve_build_asgi_app__(self) -> ASGIApp:
        """Return the application. Ray calls this once, before anything else, and sends lifespan events."""
        replicas = {model: HandledReplicas(handle) for model, handle in self._handles.items()}
        self._app = WithLifespan(open_ingress(self._settings, replicas, self._secret))
        return BehindProxy(self._app)

    async def check_health(self) -> None:
        """Report whether the ingress can serve. Ray replaces one that cannot.

        Raises:
            UnhealthyError: the application has ended.
        """
        self._app.check()


class BehindProxy:
    """An application behind Ray's proxy."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or one lifespan. A WebSocket is refused: the proxy answers with 403."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            await self._app(scope, _without_errors(receive), _without_id(scope, send))


def _without_errors(receive: Receive) -> Receive:
    """Return a `receive` that ends with a disconnect. Ray's raises an error if it has cancelled the request itself."""

    async def next_message() -> Message:
        try:
            return await receive()
        except RayError:
            return {"type": "http.disconnect"}

    return next_message


def _without_id(scope: Scope, send: Send) -> Send:
    """Return a `send` without the id of the request: the proxy, which puts one into each request, adds it itself."""
    if all(name != HEADER for name, _ in scope["headers"]):
        return send

    async def send_message(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [header for header in message["headers"] if header[0] != HEADER]}
        await send(message)

    return send_message
