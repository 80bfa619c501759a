"""Choice of the replica that holds the longest prefix of a prompt, unless it is much busier than the others."""

import logging
import secrets
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from random import Random

import anyio
from starlette.types import Scope
from typing_extensions import override

from engine import ModelInfo
from gateway.cluster.ingress.placing import Anywhere, Placed, Placer, RoutingFigures
from gateway.cluster.ingress.reading import PromptReader
from gateway.cluster.ingress.replicas import ReplicaLostError, Replicas
from gateway.cluster.request import Placement
from gateway.routing.blocks import Blocks
from gateway.routing.router import PrefixRouter, Routed

logger = logging.getLogger(__name__)

PERIOD = 1.0
"""Seconds between the answers of the replicas to what they hold, and the next question."""
PATIENCE = 5.0
"""Seconds in which a replica must answer it."""
LINGER = PATIENCE + 2 * PERIOD
"""Seconds after a request's end for which its prompt counts as held, unless a report says so anyway."""

Describe = Callable[[ModelInfo], None]
"""Takes the description of a model."""


class RoutedRequest(Placed):
    """A request that the router of a model counts."""

    def __init__(
        self, router: PrefixRouter[str], name: str, routed: Routed[str], accepted: Callable[[Routed[str]], None]
    ) -> None:
        self.placement = Placement(routed.replica, router=name)
        self.routed = routed
        """What the router counts."""
        self._router = router
        self._accepted = accepted

    @override
    def accepted(self, replica: str) -> None:
        self.routed = self._router.move(self.routed, replica)
        self._accepted(self.routed)


class ModelRouter:
    """Routes the requests to one model, by what its replicas hold and by their load."""

    def __init__(self, replicas: Replicas, slots: int, describe: Describe, name: str) -> None:
        """Create the router.

        Args:
            replicas: those of the model.
            slots: number of requests that each runs at the same time.
            describe: called with the model's description when there is a new replica.
            name: identifies this router among those of all ingresses.
        """
        self._replicas = replicas
        self._slots = slots
        self._describe = describe
        self._name = name
        self._router = PrefixRouter[str](Random(), linger=LINGER)  # noqa: S311 - spreads load
        self._reports: Mapping[str, Mapping[str, object]] | None = None
        self._described: set[str] = set()
        self._figures = RoutingFigures()

    @property
    def figures(self) -> RoutingFigures:
        """Figures of the choices so far, and of what the replicas hold now."""
        return replace(self._figures, held={replica: self._router.held(replica) for replica in self._router.replicas})

    @property
    def chooses(self) -> bool:
        """True if there are several replicas to choose from."""
        return len(self._replicas.reports) > 1

    @contextmanager
    def place(self, blocks: Blocks, without: Collection[str]) -> Iterator[Placed]:
        """Choose a replica for a request, and count it there inside the context."""
        self._update()
        try:
            routed = self._router.route(blocks, anyio.current_time(), without=without)
        except LookupError:
            yield Anywhere()
            return
        placed = RoutedRequest(self._router, self._name, routed, self._figures.count)
        try:
            yield placed
        finally:
            self._router.end(placed.routed, anyio.current_time())

    async def refresh(self) -> None:
        """Ask all replicas for what they hold. Those that do not answer are asked again the next time."""
        self._update()
        self._router.expire(anyio.current_time())
        async with anyio.create_task_group() as tasks:
            for replica in self._router.replicas:
                tasks.start_soon(self._ask, replica)

    async def _ask(self, replica: str) -> None:
        if replica not in self._router.replicas:
            return  # it has left since
        _, since = self._router.known(replica)
        try:
            with anyio.move_on_after(PATIENCE):
                if replica not in self._described:
                    self._describe(await self._replicas.model(replica))
                    self._described.add(replica)
                self._router.receive(replica, await self._replicas.held(replica, since))
        except ReplicaLostError:
            return
        except Exception:
            logger.exception("a replica cannot be asked for what it holds")

    def _update(self) -> None:
        """Take over the replicas and their load, if there are new reports."""
        reports = self._replicas.reports
        if reports is self._reports:
            return
        self._reports = reports
        self._described &= reports.keys()
        self._router.update_replicas(dict.fromkeys(_ready(reports), self._slots))
        for replica, report in reports.items():
            requests: Mapping[str, int] = report.get("requests", {})
            self._router.count_others(replica, sum(requests.values()) - requests.get(self._name, 0))


def _ready(reports: Mapping[str, Mapping[str, object]]) -> Iterator[str]:
    return (replica for replica, report in reports.items() if report.get("ready", 1.0))


class PrefixPlacer(Placer):
    """Places the requests to all models. Each ingress has one, and knows of the others by the reports of replicas."""

    def __init__(self, replicas: Mapping[str, Replicas], slots: Mapping[str, int], reader: PromptReader) -> None:
        """Create a placer.

        Args:
            replicas: replicas of the models, by name.
            slots: slots of a replica, by the name of its model.
            reader: reads the prompts of requests.
        """
        self._reader = reader
        name = secrets.token_hex(8)
        self._routers = {
            model: ModelRouter(some, slots[model], partial(reader.describe, model), name)
            for model, some in replicas.items()
        }

    @override
    async def blocks(self, model: str, scope: Scope, body: bytes) -> Blocks:
        return await self._reader.blocks(model, scope, body) if self._routers[model].chooses else ()

    @override
    def place(self, model: str, blocks: Blocks, without: Collection[str]) -> AbstractContextManager[Placed]:
        return self._routers[model].place(blocks, without)

    @property
    @override
    def figures(self) -> Mapping[str, RoutingFigures]:
        return {model: router.figures for model, router in self._routers.items()}

    async def run(self) -> None:
        """Ask the replicas of all models again and again, until cancelled."""
        while True:
            async with anyio.create_task_group() as tasks:
                for router in self._routers.values():
                    tasks.start_soon(_refresh, router)
            await anyio.sleep(PERIOD)


async def _refresh(router: ModelRouter) -> None:
    """Refresh a router. A defect ends neither the others nor the ingress."""
    try:
        await router.refresh()
    except Exception:
        logger.exception("the replicas of a model cannot be asked for what they hold")
