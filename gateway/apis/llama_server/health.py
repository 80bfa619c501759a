"""Health endpoints: readiness of the server for requests, with the reason if it is not ready, liveness and version."""

from collections.abc import Callable
from dataclasses import replace
from http import HTTPStatus
from typing import Annotated, Literal, NotRequired

from pydantic import Field

from engine import EngineState
from gateway.apis.answers.reply import JsonReply
from gateway.apis.answers.shapes import Count, JsonObject
from gateway.apis.endpoint import AnyEndpoint, BodilessEndpoint, Call
from gateway.serving.models import Models


class Healthy(JsonObject):
    """The server is ready for requests. `restarts` counts the restarts of the engines.

    `loop_lag` is present if the server's event loop was held up in the last minute: for how long at most, in seconds.
    """

    status: Literal["ok"]
    restarts: Count
    loop_lag: NotRequired[float]


class Unhealthy(JsonObject):
    """The server is not ready for requests: the state, the reason, the model, and the progress of loading."""

    status: EngineState | Literal["draining"]
    detail: str
    restarts: Count
    model: NotRequired[str]
    progress: NotRequired[Annotated[float, Field(ge=0, le=1)]]


class Probed(JsonObject):
    """The answer to a probe is yes."""

    status: Literal["ok"]


class ServerVersion(JsonObject):
    """The version of this server, in vLLM's shape."""

    version: str


class HealthEndpoints:
    """Handlers for the health checks: the state of the models' engines and of the server."""

    def __init__(self, models: Models, version: str, *, lag: Callable[[], float] = float) -> None:
        """Create the handlers.

        Args:
            models: Models whose engines must be ready.
            version: Version of the program.
            lag: Returns the event loop's notable lag in seconds; 0 without one.
        """
        self._models = models
        self._version = version
        self._lag = lag
        self.draining = False
        """True once the server is stopping."""

    def drain(self) -> None:
        """Report `draining` from now on: the server is stopping."""
        self.draining = True

    async def get(self, _call: Call[None]) -> JsonReply[Healthy | Unhealthy]:
        """Return 200 with `"status": "ok"` if every engine that must be ready is, else 503.

        Models on demand need not be loaded. A 503 has the state of the first engine that is not ready, the reason, its
        model, and the progress of loading.
        """
        unhealthy = self._unhealthy()
        if unhealthy is not None:
            return JsonReply(unhealthy, HTTPStatus.SERVICE_UNAVAILABLE)
        healthy: Healthy = {"status": "ok", "restarts": self._restarts()}
        if lag := self._lag():
            healthy["loop_lag"] = round(lag, 3)
        return JsonReply(healthy)

    async def live(self, _call: Call[None]) -> JsonReply[Probed]:
        """Return 200, because the event loop has run this. Does not depend on the engines, which restart by themselves.

        A restart of this process would help none of them, and would cut every open request.
        """
        return JsonReply({"status": "ok"})

    async def ready(self, _call: Call[None]) -> JsonReply[Probed | Unhealthy]:
        """Return 200 if every engine is ready and the server is not stopping, else 503 as `get` does."""
        unhealthy = self._unhealthy()
        if unhealthy is not None:
            return JsonReply(unhealthy, HTTPStatus.SERVICE_UNAVAILABLE)
        return JsonReply({"status": "ok"})

    async def version(self, _call: Call[None]) -> JsonReply[ServerVersion]:
        """Return the version of this server."""
        return JsonReply({"version": self._version})

    def _unhealthy(self) -> Unhealthy | None:
        if self.draining:
            return {"status": "draining", "detail": "The server is stopping.", "restarts": self._restarts()}
        for name, status in ((one.name, one.status) for one in self._models.all if not one.source.on_demand):
            if status.state is not EngineState.READY:
                return {
                    "status": status.state,
                    "detail": status.detail,
                    "restarts": self._restarts(),
                    "model": name,
                    "progress": round(status.progress, 3),
                }
        return None

    def _restarts(self) -> int:
        return sum(model.telemetry.restarts for model in self._models.all)


def health_endpoints(health: HealthEndpoints) -> tuple[AnyEndpoint, ...]:
    """Return the endpoints of the health checks, which are for probes without a key, and of the version."""
    live: BodilessEndpoint[Probed] = BodilessEndpoint(
        method="GET",
        path="/livez",
        id="getLiveness",
        summary="Check that the process and its event loop are alive, whatever the engine does.",
        handler=health.live,
        answer=Probed,
    )
    ready: BodilessEndpoint[Probed | Unhealthy] = BodilessEndpoint(
        method="GET",
        path="/readyz",
        id="getReadiness",
        summary="Check that every model is loaded and the server is not stopping.",
        handler=health.ready,
        answer=Probed,
        unready=Unhealthy,
    )
    check: BodilessEndpoint[Healthy | Unhealthy] = BodilessEndpoint(
        method="GET",
        path="/health",
        id="getHealth",
        summary="Check that the server is ready for requests.",
        handler=health.get,
        answer=Healthy,
        unready=Unhealthy,
    )
    alias = replace(check, path="/v1/health", id="getHealthV1")
    return check, alias, live, ready, *_vllm_endpoints(health, ready)


def _vllm_endpoints(health: HealthEndpoints, ready: AnyEndpoint) -> tuple[AnyEndpoint, ...]:
    """Return the endpoints that vLLM has: two are `ready` by another path, and one is the version."""
    pings = (
        replace(ready, method=method, path="/ping", id=id_, summary="Check the same as `/readyz`, as SageMaker does.")
        for method, id_ in (("GET", "getPing"), ("POST", "postPing"))
    )
    version: BodilessEndpoint[ServerVersion] = BodilessEndpoint(
        method="GET",
        path="/version",
        id="getVersion",
        summary="Get the version of this server, in vLLM's shape.",
        handler=health.version,
        answer=ServerVersion,
    )
    return *pings, version
