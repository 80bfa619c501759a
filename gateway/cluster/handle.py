"""Replicas behind a handle of Ray Serve."""

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from contextvars import Context, copy_context
from typing import Any

from ray.exceptions import RayError, RayTaskError
from ray.serve.exceptions import DeploymentUnavailableError
from ray.serve.handle import DeploymentHandle, DeploymentResponseGenerator
from typing_extensions import override

from engine.errors import Unavailable
from gateway.cluster import directory
from gateway.cluster.replicas import Forwarded, ReplicaLostError, Replicas
from gateway.cluster.request import Accepted, ForwardedRequest, Messages, Placement


class HandledReplicas(Replicas):
    """Replicas of one deployment."""

    def __init__(self, handle: DeploymentHandle) -> None:
        self._name = handle.deployment_name
        self._handle = handle.options(stream=True)

    @property
    @override
    def reports(self) -> Mapping[str, Mapping[str, Any]]:
        return directory.replicas_of(self._name)

    @override
    @asynccontextmanager
    async def forward(self, request: ForwardedRequest, placement: Placement) -> AsyncIterator[Forwarded]:
        # Ray's router mixes up concurrent calls for one request. Those for different replicas must not look so.
        context = Context() if placement.only else copy_context()
        response = context.run(self._handle.forward.remote, request, placement)
        forwarded = HandledRequest(response)
        try:
            yield forwarded
        finally:
            if not forwarded.ended:
                response.cancel()


class HandledRequest(Forwarded):
    """A request in the hands of Ray."""

    def __init__(self, response: DeploymentResponseGenerator[Any]) -> None:
        self._response = response
        self.ended = False
        """True if the response is complete, or will never be."""

    @override
    async def accepted(self) -> str:
        with self._translated():
            first: Accepted = await anext(self._response)
        return first.replica

    @override
    async def responses(self) -> AsyncIterator[Messages]:
        with self._translated():
            async for messages in self._response:
                yield messages
        self.ended = True

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Translate Ray's errors. One that the replica raised itself stays as it is."""
        try:
            yield
        except RayTaskError:
            self.ended = True
            raise
        except RayError as lost:
            self.ended = True
            raise ReplicaLostError(type(lost).__name__) from lost
        except DeploymentUnavailableError as gone:
            self.ended = True
            raise Unavailable("The model has no replica now.", code="no_replica") from gone
