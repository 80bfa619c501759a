"""The events of a response that streams."""

from typing import Literal, TypeAlias

from gateway.apis.answers.shapes import Answer, Count
from gateway.apis.openai.chat.answer import ChosenLogprob
from gateway.apis.openai.responses.answer import OutputItem, OutputText, Response, ThoughtText


class Event(Answer):
    """One of a stream, numbered from 0."""

    sequence_number: Count


class Lifecycle(Event):
    """The response as it is now. The last of these ends the stream, unless an error does."""

    type: Literal[
        "response.created",
        "response.in_progress",
        "response.completed",
        "response.incomplete",
        "response.failed",
    ]
    response: Response


class ItemEvent(Event):
    """An item begins, or has ended."""

    type: Literal["response.output_item.added", "response.output_item.done"]
    output_index: Count
    item: OutputItem


class InItem(Event):
    """Belongs to an item."""

    item_id: str
    output_index: Count


class InPart(InItem):
    """Belongs to a part of an item."""

    content_index: Count


class PartEvent(InPart):
    """A part begins, or has ended."""

    type: Literal["response.content_part.added", "response.content_part.done"]
    part: OutputText | ThoughtText


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
    """More of the thinking."""

    type: Literal["response.reasoning_text.delta"]
    delta: str


class ReasoningDone(InPart):
    """All of the thinking."""

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


class EventProblem(Answer):
    """What went wrong."""

    type: str
    message: str
    code: str | None
    param: str | None


class ErrorEvent(Event):
    """Ends a stream that failed."""

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
