"""Forwarding of requests to the replicas of their models, and to another replica if one is lost."""

import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TypeAlias

from starlette.types import Receive, Scope, Send

from engine.errors import EngineFault
from gateway.cluster.ingress.names import requested_model
from gateway.cluster.ingress.replicas import ReplicaLostError, Replicas
from gateway.cluster.ingress.reply import ConflictError, ReplayableReply
from gateway.cluster.ingress.waiting import WaitingRoom
from gateway.cluster.request import ANYWHERE, ForwardedRequest, Placement, forwarded
from gateway.middleware import errors
from gateway.middleware.caller import Caller, caller_of

logger = logging.getLogger(__name__)

ATTEMPTS = 2
"""Replicas that a request may run on, one after the other. The second one takes what a lost replica has not shown."""

FindModel: TypeAlias = Callable[[str | None], str]
"""Returns the model that a client's name means. Raises `RefusedError` for an unknown name."""
Place: TypeAlias = Callable[[str, ForwardedRequest, Replicas], AbstractContextManager[Placement]]
"""Chooses the replica for a request to a model. The context ends when the replica has done with the request."""


def anywhere(_model: str, _request: ForwardedRequest, _replicas: Replicas) -> AbstractContextManager[Placement]:
    """Leave the choice to the router of the replicas."""
    return nullcontext(ANYWHERE)


class Forwarder:
    """ASGI application inside `RequestScope`. Leaving it cancels the request on its replica."""

    def __init__(
        self,
        replicas: Mapping[str, Replicas],
        find: FindModel,
        *,
        queue_limit: int,
        queue_timeout: float,
        place: Place = anywhere,
    ) -> None:
        """Create the application.

        Args:
            replicas: replicas of the models, by name.
            find: finds the model of a request.
            queue_limit: requests to each model that may wait for a replica.
            queue_timeout: seconds that a request may wait for a replica.
            place: chooses the replica.
        """
        self._replicas = replicas
        self._find = find
        self._rooms = {model: WaitingRoom(queue_limit, queue_timeout) for model in replicas}
        self._place = place

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """Forward one request, and its response."""
        caller = caller_of(scope)
        body = caller.body.take()
        model = self._find(requested_model(scope, body))
        request = forwarded(scope, body, caller.request_id)
        reply = ReplayableReply(send, caller)
        for attempt in range(1, ATTEMPTS + 1):
            try:
                await self._forward(model, request, reply)
            except (ReplicaLostError, ConflictError) as lost:
                again = attempt < ATTEMPTS and not reply.shown
                logger.warning("a replica of %s is lost: %s", model, lost, extra={"replayed": again})
                if again:
                    continue
                await self._fail(caller, reply)
            return

    async def _forward(self, model: str, request: ForwardedRequest, reply: ReplayableReply) -> None:
        replicas = self._replicas[model]
        with self._place(model, request, replicas) as placement:
            async with replicas.forward(request, placement) as response:
                await self._rooms[model].wait(response.accepted())
                async for messages in response.responses():
                    for message in messages:
                        await reply.send(message)

    async def _fail(self, caller: Caller, reply: ReplayableReply) -> None:
        fault = EngineFault("The replica that ran this request has died.", code="engine_died")
        if not reply.begun:
            raise fault
        problem = caller.conventions.adapt(errors.report(fault))
        caller.exchange.error = problem.code or ""
        if not await reply.fail(problem):
            raise fault
