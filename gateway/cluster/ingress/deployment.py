"""Deployment of Ray Serve that takes all requests, and forwards them to the replicas of their models."""

from collections.abc import Mapping

from ray import serve
from ray.exceptions import RayError
from ray.serve.handle import DeploymentHandle
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from engine.logs import configure
from gateway.cluster.ingress.app import create_ingress
from gateway.cluster.ingress.handle import HandledReplicas
from gateway.middleware.request_id import current_request_id, current_trace_id
from gateway.settings import Settings


@serve.ingress()
class IngressReplica:
    """One ingress. It needs no model, and little memory."""

    def __init__(self, settings: Settings, handles: Mapping[str, DeploymentHandle]) -> None:
        """Create the application.

        Args:
            settings: name all models.
            handles: handles of the models' deployments, by the names of the models.
        """
        configure(settings.log_level, settings.log_format, current_request_id.get, current_trace_id.get)
        self._settings = settings
        self._handles = handles

    def __serve_build_asgi_app__(self) -> ASGIApp:
        """Return the application. Ray calls this once."""
        replicas = {model: HandledReplicas(handle) for model, handle in self._handles.items()}
        app = create_ingress(self._settings, replicas)

        async def with_lifespan(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "lifespan":
                await _live(receive, send)
            else:
                await app(scope, _without_errors(receive), send)

        return with_lifespan


def _without_errors(receive: Receive) -> Receive:
    """Return a `receive` that ends with a disconnect. Ray's raises an error if it has cancelled the request itself."""

    async def next_message() -> Message:
        try:
            return await receive()
        except RayError:
            return {"type": "http.disconnect"}

    return next_message


async def _live(receive: Receive, send: Send) -> None:
    """Answer ASGI's lifespan events. There is nothing to start and to stop."""
    while (message := await receive())["type"] != "lifespan.shutdown":
        await send({"type": f"{message['type']}.complete"})
    await send({"type": "lifespan.shutdown.complete"})
