"""Answers of the chat endpoint."""

from typing import Literal, NotRequired, TypeAlias

from engine import FinishReason
from gateway.apis.answers.shapes import (
    ChosenLogprob,
    Count,
    JsonObject,
    PromptProgress,
    Stop,
    Timestamp,
    Timings,
    Usage,
    UsageUntilNow,
)


class ChatLogprobs(JsonObject):
    """Log-probabilities of a message's tokens."""

    content: list[ChosenLogprob]
    refusal: None


class FunctionCallAnswer(JsonObject):
    """A function's name and its arguments as JSON text, unchanged from the model's output."""

    name: str
    arguments: str


class ToolCallAnswer(JsonObject):
    """A tool call by the model."""

    id: str
    type: Literal["function"]
    function: FunctionCallAnswer


class CustomCallAnswer(JsonObject):
    """A custom tool's name and its input, unchanged from the model's output."""

    name: str
    input: str


class CustomToolCallAnswer(JsonObject):
    """A call of a custom tool by the model."""

    id: str
    type: Literal["custom"]
    custom: CustomCallAnswer


class ChatMessage(JsonObject):
    """The model's message: text, reasoning and tool calls."""

    role: Literal["assistant"]
    content: str | None
    refusal: None
    reasoning_content: NotRequired[str]
    tool_calls: NotRequired[list[ToolCallAnswer | CustomToolCallAnswer]]
    function_call: NotRequired[FunctionCallAnswer]


ChatFinishReason: TypeAlias = FinishReason | Literal["tool_calls", "function_call"]
ServiceTier: TypeAlias = Literal["default"]


class ChatChoice(JsonObject):
    """One choice: a message and its finish reason."""

    index: Count
    message: ChatMessage
    logprobs: ChatLogprobs | None
    finish_reason: ChatFinishReason
    stop_reason: Stop
    token_ids: NotRequired[list[Count]]


class ChatHead(JsonObject):
    """Fields that a whole completion and the chunks of a stream share."""

    id: str
    created: Timestamp
    model: str
    system_fingerprint: str
    service_tier: NotRequired[ServiceTier]
    timings: NotRequired[Timings]
    prompt_token_ids: NotRequired[list[Count] | None]


class ChatCompletion(ChatHead):
    """A whole chat completion."""

    object: Literal["chat.completion"]
    choices: list[ChatChoice]
    usage: Usage


class FunctionDelta(JsonObject):
    """Delta of a call: first its name, then pieces of its arguments."""

    name: NotRequired[str]
    arguments: str


class ToolCallDelta(JsonObject):
    """Delta of one tool call. Only its first delta has `id` and `type`."""

    index: Count
    id: NotRequired[str]
    type: NotRequired[Literal["function"]]
    function: FunctionDelta


class CustomDelta(JsonObject):
    """Delta of a call of a custom tool: first its name, then pieces of its input."""

    name: NotRequired[str]
    input: str


class CustomToolCallDelta(JsonObject):
    """Delta of one call of a custom tool. Only its first delta has `id` and `type`."""

    index: Count
    id: NotRequired[str]
    type: NotRequired[Literal["custom"]]
    custom: CustomDelta


class ChatDelta(JsonObject):
    """Delta of a message. The first one has the role, and the last one is empty."""

    role: NotRequired[Literal["assistant"]]
    content: NotRequired[str | None]
    reasoning_content: NotRequired[str]
    tool_calls: NotRequired[list[ToolCallDelta | CustomToolCallDelta]]
    function_call: NotRequired[FunctionDelta]


class ChatPart(JsonObject):
    """One choice's part of a chunk."""

    index: Count
    delta: ChatDelta
    logprobs: ChatLogprobs | None
    finish_reason: ChatFinishReason | None
    stop_reason: NotRequired[Stop]
    token_ids: NotRequired[list[Count]]


class ChunkHead(ChatHead):
    """Fields that are the same in every chunk of a stream."""

    object: Literal["chat.completion.chunk"]


class ChatChunk(ChunkHead):
    """An event of a stream. With `include_usage`, `usage` is null except in the last chunk, which has no choices.

    With `continuous_usage_stats`, the other chunks have that of their choice until now.
    """

    choices: list[ChatPart]
    usage: NotRequired[Usage | UsageUntilNow | None]
    prompt_progress: NotRequired[PromptProgress]
