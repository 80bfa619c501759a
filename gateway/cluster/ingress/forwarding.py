"""Forwarding of requests to the replicas of their models, and to another replica if one is lost."""

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeAlias

import anyio
from starlette.types import Receive, Scope, Send

from engine.errors import EngineError, EngineFault
from gateway.cluster.ingress.log import IngressLog
from gateway.cluster.ingress.names import requested_model
from gateway.cluster.ingress.placing import Placer
from gateway.cluster.ingress.replicas import ReplicaLostError, Replicas
from gateway.cluster.ingress.reply import ConflictError, ReplayableReply
from gateway.cluster.ingress.waiting import WaitingRoom
from gateway.cluster.request import ForwardedRequest, forwarded
from gateway.middleware import errors
from gateway.middleware.caller import Caller, caller_of
from gateway.middleware.streams.sse import FINAL_EVENT_TIMEOUT
from gateway.routing.blocks import Blocks

logger = logging.getLogger(__name__)

ATTEMPTS = 2
"""Replicas that a request may run on, one after the other. The second one takes what a lost replica has not shown."""

FindModel: TypeAlias = Callable[[str | None, str], str]
"""Returns the model that a client's name, or without one a path, means. Raises `RefusedError` for an unknown name."""


class Forwarder:
    """ASGI application inside `RequestScope`. Leaving it cancels the request on its replica."""

    def __init__(
        self,
        replicas: Mapping[str, Replicas],
        find: FindModel,
        *,
        places: Mapping[str, int],
        queue_limit: int,
        queue_timeout: float,
        placer: Placer,
        log: IngressLog,
    ) -> None:
        """Create the application.

        Args:
            replicas: replicas of the models, by name.
            find: finds the model of a request.
            places: requests that one replica of each model can have.
            queue_limit: requests to each model that may wait for a replica.
            queue_timeout: seconds that a request may wait for a replica.
            placer: chooses the replicas.
            log: writes the lines of the requests that no replica has.
        """
        self._replicas = replicas
        self._find = find
        self._rooms = {
            model: WaitingRoom(queue_limit, queue_timeout, partial(_places, some, places[model]))
            for model, some in replicas.items()
        }
        self._placer = placer
        self._log = log

    @property
    def waiting(self) -> Mapping[str, int]:
        """Number of requests that wait for a replica of each model."""
        return {model: room.waiting for model, room in self._rooms.items()}

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """Forward one request, and its response."""
        caller = caller_of(scope)
        body = caller.body.take()
        model = self._find(requested_model(scope, body), scope["path"])
        request = forwarded(scope, body, caller.request_id)
        blocks = await self._placer.blocks(model, scope, body)
        reply = ReplayableReply(send, caller)
        try:
            await self._run(caller, model, request, reply, blocks)
        except EngineError as fault:
            if not await self._end(caller, reply, fault):
                raise
        except anyio.get_cancelled_exc_class():
            if (error := caller.closed().error) is not None:
                with anyio.move_on_after(FINAL_EVENT_TIMEOUT, shield=True):
                    await self._end(caller, reply, error)
            raise

    async def _run(
        self, caller: Caller, model: str, request: ForwardedRequest, reply: ReplayableReply, blocks: Blocks
    ) -> None:
        tried: set[str] = set()
        for attempt in range(1, ATTEMPTS + 1):
            try:
                await self._forward(caller, model, request, reply, blocks, tried)
            except (ReplicaLostError, ConflictError) as lost:
                again = attempt < ATTEMPTS and not reply.shown
                logger.warning("a replica of %s is lost: %s", model, lost, extra={"replayed": again})
                if not again:
                    raise EngineFault("The replica that ran this request has died.", code="engine_died") from lost
            else:
                return

    async def _forward(
        self,
        caller: Caller,
        model: str,
        request: ForwardedRequest,
        reply: ReplayableReply,
        blocks: Blocks,
        tried: set[str],
    ) -> None:
        room = self._rooms[model]
        with room.entered(), self._placer.place(model, blocks, tried) as placed:
            tried.add(placed.placement.replica)
            async with self._replicas[model].forward(request, placed.placement) as response:
                replica = await room.wait(response.accepted())
                placed.accepted(replica)
                self._log.accept(caller.exchange)
                tried.add(replica)
                async for messages in response.responses():
                    for message in messages:
                        await reply.send(message)

    async def _end(self, caller: Caller, reply: ReplayableReply, error: Exception) -> bool:
        """End a response that has begun with an error event. Returns False if it has no place for one."""
        if not reply.begun:
            return False
        problem = caller.conventions.adapt(errors.report(error))
        caller.exchange.error = problem.code or ""
        return await reply.fail(problem)


def _places(replicas: Replicas, each: int) -> int:
    return len(replicas.reports) * each
