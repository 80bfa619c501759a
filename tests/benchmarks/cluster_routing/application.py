"""The application with another choice of replicas: the same replicas, behind an ingress that does not read prompts."""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from itertools import count
from unittest.mock import patch

import orjson
from ray import serve
from ray.serve.handle import DeploymentHandle
from starlette.types import ASGIApp, Scope
from typing_extensions import override

from gateway.cluster import application
from gateway.cluster.ingress.app import create_ingress
from gateway.cluster.ingress.deployment import BehindProxy
from gateway.cluster.ingress.handle import HandledReplicas
from gateway.cluster.ingress.lifespan import WithLifespan
from gateway.cluster.ingress.placing import Anywhere, Placed, Placer
from gateway.cluster.ingress.reading import PromptReader
from gateway.cluster.ingress.replicas import Replicas
from gateway.cluster.ingress.router import ReplicaRouter
from gateway.cluster.request import Placement
from gateway.cluster.split import INGRESS
from gateway.routing.blocks import Blocks
from gateway.settings import Settings
from tests.benchmarks.cluster_routing.routers import BoundedRayPrefixRouter, RayPrefixRouter

Choose = Callable[[Counter[str], int], str]
"""Returns a replica. Takes the open requests of each, and the number of the request."""


@dataclass(frozen=True)
class PromptPlacement(Placement):
    """A placement with the text of the prompt, where Ray's router looks for it."""

    prompt: str = ""


class CountingPlacer(Anywhere):
    """Chooses by the open requests of each replica, which it counts itself."""

    def __init__(self, replicas: Mapping[str, Replicas], choose: Choose) -> None:
        self._replicas = replicas
        self._choose = choose
        self._open = Counter[str]()
        self._requests = count()

    @override
    @contextmanager
    def place(self, model: str, blocks: Blocks, without: Collection[str]) -> Iterator[Placed]:
        known = Counter({replica: self._open[replica] for replica in sorted(self._replicas[model].reports)})
        placed = Anywhere()
        placed.placement = Placement(self._choose(known, next(self._requests)))
        self._open[placed.placement.replica] += 1
        try:
            yield placed
        finally:
            self._open[placed.placement.replica] -= 1


class TextPlacer(Anywhere):
    """Leaves the choice to Ray's prefix router, which gets the text of the prompt."""

    @override
    async def blocks(self, model: str, scope: Scope, body: bytes) -> Blocks:
        return str(orjson.loads(body)["prompt"]).encode() if body else b""

    @override
    @contextmanager
    def place(self, model: str, blocks: Blocks, without: Collection[str]) -> Iterator[Placed]:
        placed = Anywhere()
        placed.placement = PromptPlacement(prompt=bytes(blocks).decode())
        yield placed


def least_loaded(known: Counter[str], request: int) -> str:
    """Return a replica with the fewest requests, each in its turn."""
    least = min(known.values())
    able = [replica for replica, requests in known.items() if requests == least]
    return able[request % len(able)]


def round_robin(known: Counter[str], request: int) -> str:
    """Return one replica after another."""
    return sorted(known)[request % len(known)]


@dataclass(frozen=True)
class Policy:
    """A choice of replicas."""

    make: Callable[[Mapping[str, Replicas]], Placer]
    """Makes the placer of an ingress."""
    router: type = ReplicaRouter
    """Ray's router for the replicas."""


POLICIES = {
    "round robin": Policy(lambda replicas: CountingPlacer(replicas, round_robin)),
    "least loaded": Policy(lambda replicas: CountingPlacer(replicas, least_loaded)),
    "Ray's": Policy(lambda _replicas: TextPlacer(), RayPrefixRouter),
    "Ray's with a threshold of 2": Policy(lambda _replicas: TextPlacer(), BoundedRayPrefixRouter),
}
PREFIXES = "prefixes"
"""The policy of this project."""


@serve.ingress()
class OtherIngress:
    """An ingress with another policy."""

    def __init__(self, settings: Settings, handles: Mapping[str, DeploymentHandle], policy: str) -> None:
        self._settings = settings
        self._handles = handles
        self._policy = policy

    def __serve_build_asgi_app__(self) -> ASGIApp:
        """Return the application. Ray calls this once."""
        return BehindProxy(WithLifespan(self._open()))

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[ASGIApp]:
        replicas = {model: HandledReplicas(handle) for model, handle in self._handles.items()}
        placer = POLICIES[self._policy].make(replicas)
        yield create_ingress(self._settings, replicas, PromptReader(self._settings, b"").apis, placer)


def application_of(settings: Settings, policy: str) -> serve.Application:
    """Return the application with a policy."""
    parts = application.parts_of(settings)
    if policy == PREFIXES:
        return application.application(settings, parts)
    with patch.object(application, ReplicaRouter.__name__, POLICIES[policy].router):
        models = {name: application._model(share, b"") for name, share in parts.items()}
    options = {"max_ongoing_requests": application.MOST_FORWARDED, "ray_actor_options": {"num_cpus": 0}}
    return serve.deployment(name=INGRESS, **options)(OtherIngress).bind(settings, models, policy)
