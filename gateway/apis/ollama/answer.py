"""Answers of Ollama's routes that generate."""

from datetime import UTC, datetime
from typing import Any, Literal, NotRequired, TypeAlias

from engine import Finished, FinishReason
from gateway.apis.answers.shapes import ChosenLogprob, Count, JsonObject

_NANOSECONDS = 10**9


class Function(JsonObject):
    """A function's name and its arguments."""

    index: Count
    name: str
    arguments: dict[str, Any]


class AnsweredCall(JsonObject):
    """A tool call by the model. Always complete."""

    id: str
    function: Function


class AnsweredMessage(JsonObject):
    """The model's message, or a piece of it."""

    role: Literal["assistant"]
    content: str
    thinking: NotRequired[str]
    tool_calls: NotRequired[list[AnsweredCall]]


DoneReason: TypeAlias = Literal["stop", "length", "load", "unload"]


class Line(JsonObject):
    """Fields of every answer and of every line of a stream. The figures are in the last line; times in nanoseconds."""

    model: str
    created_at: str
    done: bool
    done_reason: NotRequired[DoneReason]
    logprobs: NotRequired[list[ChosenLogprob]]
    total_duration: NotRequired[Count]
    load_duration: NotRequired[Count]
    prompt_eval_count: NotRequired[Count]
    prompt_eval_duration: NotRequired[Count]
    eval_count: NotRequired[Count]
    eval_duration: NotRequired[Count]


class ChatLine(Line):
    """An answer to a chat, or a line of its stream."""

    message: AnsweredMessage


class GenerateLine(Line):
    """An answer to a prompt, or a line of its stream."""

    response: str
    thinking: NotRequired[str]


def now() -> str:
    """Return the time in Ollama's format."""
    return timestamp(datetime.now(UTC))


def timestamp(moment: datetime) -> str:
    """Return a time in UTC in Ollama's format."""
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def done_reason(end: Finished) -> DoneReason:
    """Return why a text ended."""
    return "length" if end.reason is FinishReason.LENGTH else "stop"


def nanoseconds(seconds: float) -> int:
    """Return a duration in Ollama's unit."""
    return max(int(seconds * _NANOSECONDS), 0)
