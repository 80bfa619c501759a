"""Deployment of Ray Serve that takes all requests, and forwards them to the replicas of their models."""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager

from ray import serve
from ray.exceptions import RayError
from ray.serve.handle import DeploymentHandle
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from engine.logs import configure
from gateway.cluster.ingress.handle import HandledReplicas
from gateway.cluster.ingress.opening import open_ingress
from gateway.middleware.request_id import current_request_id, current_trace_id
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
        configure(settings.log_level, settings.log_format, current_request_id.get, current_trace_id.get)
        self._settings = settings
        self._handles = handles
        self._secret = secret

    def __serve_build_asgi_app__(self) -> ASGIApp:
        """Return the application. Ray calls this once."""
        replicas = {model: HandledReplicas(handle) for model, handle in self._handles.items()}
        return WithLifespan(open_ingress(self._settings, replicas, self._secret))


class WithLifespan:
    """An application that is open between ASGI's lifespan events. Ray sends them, and raises what the start raises."""

    def __init__(self, opening: AbstractAsyncContextManager[ASGIApp]) -> None:
        self._opening = opening
        self._app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Open and close the application, or serve one request."""
        if scope["type"] != "lifespan":
            await self._app(scope, _without_errors(receive), send)
            return
        await receive()
        async with self._opening as self._app:
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})


def _without_errors(receive: Receive) -> Receive:
    """Return a `receive` that ends with a disconnect. Ray's raises an error if it has cancelled the request itself."""

    async def next_message() -> Message:
        try:
            return await receive()
        except RayError:
            return {"type": "http.disconnect"}

    return next_message
