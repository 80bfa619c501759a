"""Endpoints `/slots` and `/slots/queue`: the work of every slot of the engine, and the requests that wait."""

from functools import partial
from typing import Literal, TypeAlias

from engine import QueuedRequest, SlotInfo, Unavailable
from gateway.apis.answers.reply import JsonReply
from gateway.apis.answers.shapes import Count, JsonObject, Time
from gateway.apis.endpoint import MODEL_PARAMETER, NOT_FOUND, AnyEndpoint, BodilessEndpoint, Call, Described
from gateway.apis.llama_server.options import NOT_ALLOWED, RouteOptions, refused
from gateway.serving.models import Models
from gateway.serving.served import Served

_FAIL_PARAMETER: Described = {
    "name": "fail_on_no_slot",
    "in": "query",
    "description": "With any value, the answer is 503 while no slot is idle.",
    "schema": {"type": "string"},
}


class Slot(JsonObject):
    """The state of a slot."""

    id: Count
    n_ctx: Count
    is_processing: bool
    state: Literal["idle", "prefill", "decode"]
    request_id: str | None
    active_tokens: Count
    cached_tokens: Count


class Queued(JsonObject):
    """A request that waits for a slot. `position` counts from 1, and `seconds` since it was sent to the engine."""

    position: Count
    request_id: str | None
    prompt_tokens: Count
    priority: int
    seconds: Time


QueueList: TypeAlias = list[Queued]


class SlotsEndpoints:
    """Handlers for the lists of slots and of waiting requests. The engine answers even during a long step."""

    def __init__(self, models: Models, options: RouteOptions) -> None:
        self._models = models
        self._options = options

    async def list(self, call: Call[None]) -> JsonReply[list[Slot]]:
        """Return one object per slot, with the ids of those requests only that have the caller's credentials.

        Raises `Unavailable` while the engine is down, or the model not loaded, or if asked for while no slot is idle.
        """
        served = self._served(call)
        slots, _metrics = await served.engine.inspect()
        if call.http.query_params.get("fail_on_no_slot") and all(slot.request_id is not None for slot in slots):
            raise Unavailable("no slot available", code="no_idle_slot")
        context = served.loaded.context
        return JsonReply(
            [_encode(slot, context, shown=served.generations.has_sent(call.caller, slot.request_id)) for slot in slots]
        )

    async def queue(self, call: Call[None]) -> JsonReply[QueueList]:
        """Return one object per waiting request in the order of the queue, with ids as in `list`.

        Raises `Unavailable` as `list` does.
        """
        served = self._served(call)
        has_sent = partial(served.generations.has_sent, call.caller)
        waiting = await served.engine.queue()
        return JsonReply([_encode_queued(one, shown=has_sent(one.request_id)) for one in waiting])

    def _served(self, call: Call[None]) -> Served:
        if not self._options.slots:
            raise refused("slots endpoint", "without `--no-slots`")
        return self._models.find(call.caller, call.http.query_params.get("model")).loaded()


def _encode(slot: SlotInfo, context: int, *, shown: bool) -> Slot:
    return {
        "id": slot.id,
        "n_ctx": context,
        "is_processing": slot.request_id is not None,
        "state": slot.state,
        "request_id": slot.request_id if shown else None,
        "active_tokens": slot.active_tokens,
        "cached_tokens": slot.cached_tokens,
    }


def _encode_queued(one: QueuedRequest, *, shown: bool) -> Queued:
    return {
        "position": one.position,
        "request_id": one.request_id if shown else None,
        "prompt_tokens": one.prompt_tokens,
        "priority": one.priority,
        "seconds": round(one.seconds, 3),
    }


def slots_endpoints(models: Models, options: RouteOptions) -> tuple[AnyEndpoint, ...]:
    """Return the endpoints of slots and of the queue."""
    endpoints = SlotsEndpoints(models, options)
    slots = BodilessEndpoint(
        method="GET",
        path="/slots",
        id="listSlots",
        summary="List the engine's slots and their work.",
        handler=endpoints.list,
        answer=list[Slot],
        query=(MODEL_PARAMETER, _FAIL_PARAMETER),
        refusals=NOT_FOUND | NOT_ALLOWED,
    )
    queue = BodilessEndpoint(
        method="GET",
        path="/slots/queue",
        id="listQueue",
        summary="List the requests that wait for a slot, in order.",
        handler=endpoints.queue,
        answer=QueueList,
        query=(MODEL_PARAMETER,),
        refusals=NOT_FOUND | NOT_ALLOWED,
    )
    return slots, queue
