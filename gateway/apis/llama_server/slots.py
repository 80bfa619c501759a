"""Endpoint `/slots`: the work of every slot of the engine."""

from types import NoneType
from typing import Literal

from engine import SlotInfo
from gateway.apis.answers.reply import JsonReply
from gateway.apis.answers.shapes import Count, JsonObject
from gateway.apis.endpoint import AnyEndpoint, Call, Endpoint, no_body
from gateway.serving.models import Models


class Slot(JsonObject):
    """The state of a slot."""

    id: Count
    is_processing: bool
    state: Literal["idle", "prefill", "decode"]
    request_id: str | None
    active_tokens: Count
    cached_tokens: Count


class SlotsEndpoints:
    """Handlers for the list of slots. The engine answers at any time, even during a long step."""

    def __init__(self, models: Models) -> None:
        self._models = models

    async def list(self, call: Call[None]) -> JsonReply[list[Slot]]:
        """Return one object per slot, with the ids of those requests only that have the caller's credentials.

        Raises `Unavailable` while the engine is down.
        """
        served = await self._models.resolve(call.caller, None)
        slots, _metrics = await served.engine.inspect()
        return JsonReply(
            [_encode(slot, shown=served.generations.has_sent(call.caller, slot.request_id)) for slot in slots]
        )


def _encode(slot: SlotInfo, *, shown: bool) -> Slot:
    return {
        "id": slot.id,
        "is_processing": slot.request_id is not None,
        "state": slot.state,
        "request_id": slot.request_id if shown else None,
        "active_tokens": slot.active_tokens,
        "cached_tokens": slot.cached_tokens,
    }


def slots_endpoints(models: Models) -> tuple[AnyEndpoint, ...]:
    """Return the endpoint of `/slots`."""
    slots = Endpoint(
        method="GET",
        path="/slots",
        id="listSlots",
        summary="List the engine's slots and their work.",
        body=NoneType,
        prepare=no_body,
        handler=SlotsEndpoints(models).list,
        answer=list[Slot],
    )
    return (slots,)
