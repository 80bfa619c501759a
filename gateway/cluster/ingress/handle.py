"""Replicas behind a handle of Ray Serve."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from contextvars import Context, copy_context
from functools import partial
from typing import Any, cast

import anyio
import ray
from ray import serve
from ray.exceptions import RayError, RayTaskError
from ray.serve.exceptions import DeploymentUnavailableError
from ray.serve.handle import DeploymentHandle, DeploymentResponseGenerator
from typing_extensions import override

from engine import ModelInfo
from engine.errors import Unavailable
from gateway.cluster.ingress import directory
from gateway.cluster.ingress.replicas import Forwarded, ReplicaLostError, Replicas
from gateway.cluster.request import Accepted, ForwardedRequest, Messages, Placement
from gateway.routing.report import Report

PERIOD, PATIENCE = 1.0, 0.2
"""Seconds between two looks whether a deployment without replicas is deleted, and those that Ray has to say so."""


class HandledReplicas(Replicas):
    """Replicas of one deployment."""

    def __init__(self, handle: DeploymentHandle) -> None:
        self._name = handle.deployment_name
        self._any = handle.options(stream=True)
        # A handle of its own, in which nothing waits: requests for one replica must not queue behind all others.
        self._one = serve.get_deployment_handle(self._name, handle.app_name).options(stream=True)
        self._ingress = ray.get_runtime_context().get_actor_name()
        self._deleted = False
        self._next_look = 0.0

    @property
    @override
    def reports(self) -> Mapping[str, Mapping[str, Any]]:
        return directory.replicas_of(self._name)

    @override
    @asynccontextmanager
    async def forward(self, request: ForwardedRequest, placement: Placement) -> AsyncIterator[Forwarded]:
        # Ray's router mixes up concurrent calls for one request. Those for different replicas must not look so.
        context = Context() if placement.only else copy_context()
        handle = self._one if placement.only else self._any
        response = context.run(handle.forward.remote, request, placement, self._ingress)
        forwarded = HandledRequest(response, self._wait_until_deleted)
        try:
            yield forwarded
        finally:
            if not forwarded.ended:
                response.cancel()

    @override
    async def model(self, replica: str) -> ModelInfo:
        return cast("ModelInfo", await self._ask(replica, "describe"))

    @override
    async def held(self, replica: str, since: int) -> Report:
        return cast("Report", await self._ask(replica, "prefixes", since))

    async def _wait_until_deleted(self) -> None:
        """Wait until the deployment is deleted. Ray refuses new calls then, and leaves those waiting that it has."""
        while self.reports or not self._deleted:
            await anyio.sleep(PERIOD)
            if not self.reports and anyio.current_time() >= self._next_look:  # one look for all that wait
                self._next_look = anyio.current_time() + PERIOD
                await self._look()

    async def _look(self) -> None:
        """Record whether Ray refuses a call."""
        self._deleted = False
        with anyio.move_on_after(PATIENCE):
            try:
                await self._ask("", "describe")
            except ReplicaLostError:
                self._deleted = True

    async def _ask(self, replica: str, method: str, *arguments: object) -> Any:  # noqa: ANN401 - by the method
        """Return what a method of one replica returns."""
        handle = self._one.options(method_name=method, stream=False)
        response = Context().run(partial(handle.remote, *arguments, Placement(replica, only=True)))
        try:
            return await response
        except asyncio.CancelledError as cancelled:
            response.cancel()
            raise _first(cancelled) from None
        except (RayError, DeploymentUnavailableError) as lost:
            raise ReplicaLostError(type(lost).__name__) from lost


class HandledRequest(Forwarded):
    """A request in the hands of Ray."""

    def __init__(self, response: DeploymentResponseGenerator[Any], deleted: Callable[[], Awaitable[None]]) -> None:
        """Take over a response.

        Args:
            response: Ray's.
            deleted: waits until the deployment is deleted.
        """
        self._response = response
        self._deleted = deleted
        self.ended = False
        """True if the response is complete, or will never be."""

    @override
    async def accepted(self) -> str:
        first: Accepted | None = None
        failure: Exception | None = None
        async with anyio.create_task_group() as tasks:

            async def give_up() -> None:
                await self._deleted()
                tasks.cancel_scope.cancel()

            tasks.start_soon(give_up)
            try:
                with self._translated():
                    first = await anext(self._response)
            except Exception as error:  # noqa: BLE001 - raised below, outside of the task group
                failure = error
            tasks.cancel_scope.cancel()
        if failure is not None:
            raise failure
        if first is None:
            raise Unavailable("The model has no replica now.", code="no_replica")
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
        except asyncio.CancelledError as cancelled:
            raise _first(cancelled) from None
        except RayTaskError:
            self.ended = True
            raise
        except RayError as lost:
            self.ended = True
            raise ReplicaLostError(type(lost).__name__) from lost
        except DeploymentUnavailableError as gone:
            self.ended = True
            raise Unavailable("The model has no replica now.", code="no_replica") from gone


def _first(cancelled: BaseException) -> BaseException:
    """Return the cancellation that Ray replaced by one of its own, which no cancel scope recognises."""
    while isinstance(cancelled.__context__, asyncio.CancelledError):
        cancelled = cancelled.__context__
    return cancelled
