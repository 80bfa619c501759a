"""Choice of the replica for each request."""

from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Protocol

from starlette.types import Scope
from typing_extensions import override

from gateway.cluster.request import ANYWHERE, Placement
from gateway.routing.blocks import Blocks
from gateway.routing.router import Routed


class Placed(Protocol):
    """A request that has a placement, until its end."""

    placement: Placement
    """The chosen replica."""

    def accepted(self, replica: str) -> None:
        """Record the replica that has the request, which may be another one."""


class Placer(Protocol):
    """Chooses replicas."""

    async def blocks(self, model: str, scope: Scope, body: bytes) -> Blocks:
        """Return the blocks of a request's prompt, as far as they help to choose. Never raises."""

    def place(self, model: str, blocks: Blocks, without: Collection[str]) -> AbstractContextManager[Placed]:
        """Choose the replica for a request. The context ends when the replica has done with it.

        Args:
            model: model of the request.
            blocks: blocks of its prompt.
            without: replicas that have lost the request.
        """

    @property
    def figures(self) -> Mapping[str, "RoutingFigures"]:
        """Figures of each model."""


@dataclass(slots=True)
class RoutingFigures:
    """Figures of the choice of replicas for one model."""

    by_prefix: int = 0
    """Requests to a replica that holds a part of the prompt."""
    by_load: int = 0
    """Other requests: the load alone decided."""
    held: Mapping[str, int] = field(default_factory=dict)
    """Known blocks of prompts that each replica holds, by its id."""

    def count(self, routed: Routed[str]) -> None:
        """Count a request that a replica has."""
        if routed.held:
            self.by_prefix += 1
        else:
            self.by_load += 1


class Anywhere(Placer, Placed):
    """Leaves the choice to the router of the replicas."""

    placement = ANYWHERE

    @override
    async def blocks(self, model: str, scope: Scope, body: bytes) -> Blocks:
        return ()

    @property
    @override
    def figures(self) -> Mapping[str, RoutingFigures]:
        return {}

    @override
    def place(self, model: str, blocks: Blocks, without: Collection[str]) -> AbstractContextManager[Placed]:
        return nullcontext(self)

    @override
    def accepted(self, replica: str) -> None:
        """Do nothing: no request is counted."""
