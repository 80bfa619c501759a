"""`GET /slots`: the work of every slot of the engine."""

from gateway.apis.answers.reply import JsonReply
from gateway.apis.endpoint import Call
from gateway.apis.others import Slot
from gateway.serving.models import Models


class Slots:
    """Lists the slots. The engine answers at any time, also during a long pass through the model."""

    def __init__(self, models: Models) -> None:
        self._models = models

    async def list(self, _call: Call[None]) -> JsonReply[list[Slot]]:
        """Answer one object a slot. Raises `Unavailable` while there is no engine to ask."""
        served = await self._models.resolve(None)
        slots, _figures = await served.engine.inspect()
        return JsonReply(
            [
                {
                    "id": slot.id,
                    "is_processing": slot.request_id is not None,
                    "state": slot.state,
                    "request_id": slot.request_id,
                    "active_tokens": slot.active_tokens,
                    "cached_tokens": slot.cached_tokens,
                }
                for slot in slots
            ]
        )
