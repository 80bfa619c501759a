"""`GET /slots`: what every slot of the engine does now."""

from typing import Literal

from starlette.requests import Request
from starlette.responses import Response

from engine import Engine, SlotInfo
from gateway.apis.answers.reply import json_reply
from gateway.apis.answers.shapes import Answer, Count


class Slot(Answer):
    """The state of a slot."""

    id: Count
    is_processing: bool
    state: Literal["idle", "prefill", "decode"]
    request_id: str | None
    active_tokens: Count
    cached_tokens: Count


class Slots:
    """Asks the engine, which answers at any time, a long pass through the model included."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def list(self, _request: Request) -> Response:
        """One object a slot. Raises `Unavailable` while there is no engine to ask."""
        slots, _figures = await self._engine.inspect()
        return json_reply([_encode(slot) for slot in slots])


def _encode(slot: SlotInfo) -> Slot:
    return {
        "id": slot.id,
        "is_processing": slot.request_id is not None,
        "state": slot.state,
        "request_id": slot.request_id,
        "active_tokens": slot.active_tokens,
        "cached_tokens": slot.cached_tokens,
    }
