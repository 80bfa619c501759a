"""Endpoint `/v1/chat/completions/control`: ends the reasoning of a chat completion while it is streamed."""

from typing import Literal, NotRequired

from pydantic import Field

from gateway.apis.answers.reply import JsonReply
from gateway.apis.answers.shapes import JsonObject
from gateway.apis.endpoint import AnyEndpoint, Call, Endpoint
from gateway.apis.fields.base import Fields
from gateway.serving.models import Models

MAX_ID = 2**8
"""Maximum length of the id of an answer."""


class ControlBody(Fields):
    """The body of a request for control. `model` has no effect: the id alone names the answer."""

    id: str = Field(min_length=1, max_length=MAX_ID, description="The `id` of a streamed chat completion.")
    action: Literal["reasoning_end"] = Field(description="Ends the reasoning, so that the answer follows.")
    model: str | None = None


class Controlled(JsonObject):
    """True if the answer could be controlled. `message` has the reason if it could not."""

    success: bool
    message: NotRequired[str]


def prepare_control(body: ControlBody) -> str:
    """Return the id in a body."""
    return body.id


class ControlEndpoints:
    """Handlers for the control of answers."""

    def __init__(self, models: Models) -> None:
        self._models = models

    async def control(self, call: Call[str]) -> JsonReply[Controlled]:
        """End the reasoning of an answer where it has begun. Where it has not, or is over, nothing changes."""
        answer = self._models.running.find(call.caller, call.prepared)
        if answer is not None and not answer.controlled:
            return JsonReply({"success": False, "message": "reasoning control not enabled for this completion"})
        if answer is None or not answer.source.end_reasoning():
            return JsonReply({"success": False, "message": "no active completion for this id"})
        return JsonReply({"success": True})


def control_endpoints(models: Models) -> tuple[AnyEndpoint, ...]:
    """Return the endpoint of the control of answers."""
    control = Endpoint(
        method="POST",
        path="/v1/chat/completions/control",
        id="controlChatCompletion",
        summary="End the reasoning of a chat completion while it is streamed.",
        body=ControlBody,
        prepare=prepare_control,
        handler=ControlEndpoints(models).control,
        answer=Controlled,
    )
    return (control,)
