"""Replica of a model on Ray Serve: a whole gateway with its engine, which takes requests from the ingress."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import ray
from ray import serve
from ray.exceptions import RayError

from engine import Engine, EngineMetrics, EngineState, ModelInfo
from engine.logs import configure
from gateway.app import Gateway
from gateway.cluster.exchange import Exchange
from gateway.cluster.health import UnhealthyError
from gateway.cluster.host import Host
from gateway.cluster.request import Accepted, ForwardedRequest, Messages, Placement
from gateway.cluster.sent import SentRequests
from gateway.cluster.serving import open_replica
from gateway.cluster.settlement import SettledResponses
from gateway.cluster.split import replaced
from gateway.metrics.sequences import load
from gateway.middleware.access_log import logger as access_logger
from gateway.middleware.request_id import LOG_FIELDS
from gateway.routing.report import Report
from gateway.serving.prefixes import HeldPrefixes
from gateway.settings import Settings

_FAILED = {EngineState.FAILED, EngineState.STOPPED}
_NAMESPACE = "serve"
"""Ray's namespace of all actors of Ray Serve."""


class ModelReplica:
    """One gateway with the engine of one model. Ray Serve calls its methods, on the event loop of the gateway."""

    async def __init__(self, settings: Settings, secret: bytes) -> None:  # type: ignore[misc]  # Ray awaits it
        """Open the gateway. Ends when the model is loaded, so that no request comes before.

        Args:
            settings: name one model. Without threads, the engine has as many as Ray reserves CPUs for the replica.
            secret: that of the hashes of prompts, for all parts of the application.
        """
        access_logger.disabled = settings.access_log == "off"
        configure(settings.log_level, settings.log_format, LOG_FIELDS)
        self._id = serve.get_replica_context().replica_id.unique_id
        self._requests = Counter[str]()
        self._prefixes = HeldPrefixes(secret)
        self._sent = SentRequests(_lives)
        host = Host(_open(_with_threads(settings), self._prefixes, self._sent))
        gateway, self._engine = await host.open()
        self._host = host  # not before: Ray also calls the destructor if this has failed
        self._app = SettledResponses(gateway.app, gateway.settled)

    async def __del__(self) -> None:
        """Close the gateway and its engine. Ray calls this when all requests have ended."""
        if hasattr(self, "_host"):
            await self._host.close()

    async def forward(
        self,
        request: ForwardedRequest,
        placement: Placement,
        ingress: str,
    ) -> AsyncIterator[Accepted | Messages]:
        """Serve one request: yield `Accepted`, then the messages of the response.

        A reader that stops has left, and so has one whose ingress, an actor with this name, has died. The request's KV
        cells are then free before the next step.
        """
        exchange = Exchange(self._app, request)
        self._requests[placement.router] += 1
        try:
            with self._sent.sent_by(ingress, exchange):
                yield Accepted(self._id)
                async for messages in exchange.responses():
                    yield messages
        finally:
            self._requests[placement.router] -= 1
            exchange.leave()

    async def describe(self, placement: Placement) -> ModelInfo:  # noqa: ARG002 - Ray's router has used it
        """Return the description of the model. Waits until it is loaded."""
        return await self._engine.ready()

    async def prefixes(self, since: int, placement: Placement) -> Report:  # noqa: ARG002
        """Return the changes since a state of the blocks that this replica holds: see `HeldBlocks`."""
        report, _ = await self._prefixes.report(since)
        return report

    async def check_health(self) -> None:
        """Report whether the replica can serve. Ray replaces one that cannot.

        An engine that restarts after a crash is healthy: it will serve again, and the requests that wait for it would
        be lost with the replica.

        Raises:
            UnhealthyError: the engine has failed for good, or the gateway has ended.
        """
        status = self._engine.status
        if status.state in _FAILED:
            raise UnhealthyError(status.detail)
        if self._host.ended:
            raise UnhealthyError("The gateway of this replica has ended.")

    async def record_routing_stats(self) -> dict[str, Any]:
        """Return what routers need to know of this replica."""
        return {
            "ready": float(self._engine.status.state is EngineState.READY),
            "requests": {router: number for router, number in self._requests.items() if router and number},
        }

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """Return the load of this replica, and its parts, for `gateway.cluster.scaling`."""
        metrics, model = self._engine.metrics or EngineMetrics(), self._engine.model
        cells = (model.cells or model.slots * model.context) if model is not None else 0
        return {
            "queue": load(metrics),
            "tokens": metrics.active_tokens / max(cells, 1),
        }


@asynccontextmanager
async def _open(
    settings: Settings, prefixes: HeldPrefixes, sent: SentRequests
) -> AsyncIterator[tuple[Gateway, Engine]]:
    async with open_replica(settings, prefixes) as opened, sent.watched():
        yield opened


def _lives(actor: str) -> bool:
    """Return False for an actor that has died. One that Ray cannot find out about may live."""
    try:
        ray.get_actor(actor, _NAMESPACE)
    except ValueError:
        return False
    except RayError:
        return True
    return True


def _with_threads(settings: Settings) -> Settings:
    """Return the settings with a number of threads. Replicas on one machine would all take all of its cores."""
    if settings.threads is not None:
        return settings
    cpus = ray.get_runtime_context().get_assigned_resources().get("CPU", 1)
    return replaced(settings, {"threads": max(1, int(cpus))})
