"""The events of a response that streams."""

from typing import Literal, TypeAlias

from gateway.apis.answers.shapes import Count, JsonObject
from gateway.apis.openai.chat.answer import ChosenLogprob
from gateway.apis.openai.responses.answer import Response
from gateway.apis.openai.responses.items import OutputItem, OutputReasoningText, OutputText


class Event(JsonObject):
    """An event of a stream, numbered from 0."""

    sequence_number: Count


LifecycleType: TypeAlias = Literal[
    "response.created",
    "response.in_progress",
    "response.completed",
    "response.incomplete",
    "response.failed",
]


class Lifecycle(Event):
    """The response as it is now. The last of these ends the stream, unless an error does."""

    type: LifecycleType
    response: Response


class ItemEvent(Event):
    """The beginning or the end of an item."""

    type: Literal["response.output_item.added", "response.output_item.done"]
    output_index: Count
    item: OutputItem


class InItem(Event):
    """An event inside an item."""

    item_id: str
    output_index: Count


class InPart(InItem):
    """An event inside a part of an item."""

    content_index: Count


class PartEvent(InPart):
    """The beginning or the end of a part."""

    type: Literal["response.content_part.added", "response.content_part.done"]
    part: OutputText | OutputReasoningText


class TextDelta(InPart):
    """More of a text."""

    type: Literal["response.output_text.delta"]
    delta: str
    logprobs: list[ChosenLogprob]


class TextDone(InPart):
    """All of a text."""

    type: Literal["response.output_text.done"]
    text: str
    logprobs: list[ChosenLogprob]


class ReasoningDelta(InPart):
    """More of the reasoning."""

    type: Literal["response.reasoning_text.delta"]
    delta: str


class ReasoningDone(InPart):
    """All of the reasoning."""

    type: Literal["response.reasoning_text.done"]
    text: str


class ArgumentsDelta(InItem):
    """More of a call's arguments."""

    type: Literal["response.function_call_arguments.delta"]
    delta: str


class ArgumentsDone(InItem):
    """All of a call's arguments."""

    type: Literal["response.function_call_arguments.done"]
    name: str
    arguments: str


class EventProblem(JsonObject):
    """The failure."""

    type: str
    message: str
    code: str | None
    param: str | None


class ErrorEvent(Event):
    """The end of a stream that failed. OpenAI's document has the fields flat, its server and its SDK in `error`."""

    type: Literal["error"]
    message: str
    code: str | None
    param: str | None
    error: EventProblem


ResponseEvent: TypeAlias = (
    Lifecycle
    | ItemEvent
    | PartEvent
    | TextDelta
    | TextDone
    | ReasoningDelta
    | ReasoningDone
    | ArgumentsDelta
    | ArgumentsDone
    | ErrorEvent
)
