"""Events of a streamed response."""

from typing import Literal, NotRequired, TypeAlias

from gateway.apis.answers.shapes import ChosenLogprob, Count, JsonObject, PromptProgress, Timings
from gateway.apis.openai.responses.answer import Response
from gateway.apis.openai.responses.items import OutputItem, OutputReasoningText, OutputText


class Event(JsonObject):
    """An event of a stream. Numbers start at 0. With `timings_per_token` it has llama-server's times until now."""

    sequence_number: Count
    timings: NotRequired[Timings]


LifecycleType: TypeAlias = Literal[
    "response.created",
    "response.in_progress",
    "response.completed",
    "response.incomplete",
    "response.failed",
]


class Lifecycle(Event):
    """The response in its current state. The last event of this type ends the stream, unless an error follows.

    With `return_progress`, `response.in_progress` is repeated with the progress of the prompt.
    """

    type: LifecycleType
    response: Response
    prompt_progress: NotRequired[PromptProgress]


class ItemEvent(Event):
    """The start or the end of an item."""

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
    """The start or the end of a part."""

    type: Literal["response.content_part.added", "response.content_part.done"]
    part: OutputText | OutputReasoningText


class TextDelta(InPart):
    """A delta of a text."""

    type: Literal["response.output_text.delta"]
    delta: str
    logprobs: list[ChosenLogprob]


class TextDone(InPart):
    """The whole text of a part."""

    type: Literal["response.output_text.done"]
    text: str
    logprobs: list[ChosenLogprob]


class ReasoningDelta(InPart):
    """A delta of the reasoning."""

    type: Literal["response.reasoning_text.delta"]
    delta: str


class ReasoningDone(InPart):
    """The whole reasoning."""

    type: Literal["response.reasoning_text.done"]
    text: str


class ArgumentsDelta(InItem):
    """A delta of a call's arguments."""

    type: Literal["response.function_call_arguments.delta"]
    delta: str


class ArgumentsDone(InItem):
    """The whole arguments of a call."""

    type: Literal["response.function_call_arguments.done"]
    name: str
    arguments: str


class CustomInputDelta(InItem):
    """A delta of the input of a custom tool."""

    type: Literal["response.custom_tool_call_input.delta"]
    delta: str


class CustomInputDone(InItem):
    """The whole input of a custom tool."""

    type: Literal["response.custom_tool_call_input.done"]
    input: str


class EventProblem(JsonObject):
    """The error that ended a stream."""

    type: str
    message: str
    code: str | None
    param: str | None


class ErrorEvent(Event):
    """The end of a failed stream. Fields are flat as in OpenAI's document, and in `error` as in its server and SDK."""

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
    | CustomInputDelta
    | CustomInputDone
    | ErrorEvent
)
