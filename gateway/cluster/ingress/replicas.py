"""Replicas of a model as the ingress sees them, without Ray's vocabulary."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from engine import ModelInfo
from gateway.cluster.request import ForwardedRequest, Messages, Placement
from gateway.routing.report import Report


class ReplicaLostError(Exception):
    """The replica died, or cannot be reached any more. What it had of the request is lost."""


class Forwarded(Protocol):
    """A request that waits for a replica, or that one has."""

    async def accepted(self) -> str:
        """Wait until a replica has the request, and return its id.

        Raises:
            Unavailable: there are no replicas.
            ReplicaLostError: the replica is lost.
        """

    def responses(self) -> AsyncIterator[Messages]:
        """Yield the messages of the response as they come.

        Raises:
            ReplicaLostError: the replica is lost.
        """


class Replicas(Protocol):
    """Replicas of one model."""

    @property
    def reports(self) -> Mapping[str, Mapping[str, Any]]:
        """Last report of each replica, by its id."""

    def forward(self, request: ForwardedRequest, placement: Placement) -> AbstractAsyncContextManager[Forwarded]:
        """Send a request to a replica. It is cancelled there when the context is left."""

    async def model(self, replica: str) -> ModelInfo:
        """Return the description of the model that a replica has loaded.

        Raises:
            ReplicaLostError: the replica does not answer.
        """

    async def held(self, replica: str, since: int) -> Report:
        """Return the changes since a state of the blocks that a replica holds.

        Raises:
            ReplicaLostError: the replica does not answer.
        """
