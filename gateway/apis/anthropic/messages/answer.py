"""Answers of `/v1/messages`, and the events of its stream."""

from typing import Any, Literal, TypeAlias

from gateway.apis.answers.shapes import Count, JsonObject
from gateway.apis.anthropic.errors import AnthropicError

StopReason: TypeAlias = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use", "model_context_window_exceeded"]


class TextBlock(JsonObject):
    """A text."""

    type: Literal["text"]
    text: str


class ThinkingBlock(JsonObject):
    """The model's reasoning, with its signature."""

    type: Literal["thinking"]
    thinking: str
    signature: str


class ToolUseBlock(JsonObject):
    """A tool call by the model."""

    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any]


ContentBlock: TypeAlias = TextBlock | ThinkingBlock | ToolUseBlock


class CacheCreation(JsonObject):
    """Tokens that were written to a cache of a certain time."""

    ephemeral_5m_input_tokens: Count
    ephemeral_1h_input_tokens: Count


class OutputTokens(JsonObject):
    """Count of output tokens in the thinking, also where its text is left out."""

    thinking_tokens: Count


class MessageUsage(JsonObject):
    """Token counts. All tokens of the prompt are those of `input_tokens` and `cache_read_input_tokens` together."""

    input_tokens: Count
    cache_creation_input_tokens: Count
    cache_read_input_tokens: Count
    cache_creation: CacheCreation
    output_tokens: Count
    output_tokens_details: OutputTokens
    service_tier: Literal["standard"]


class Message(JsonObject):
    """The model's message. In the first event of a stream it has no content and no stop reason yet."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[ContentBlock]
    stop_reason: StopReason | None
    stop_sequence: str | None
    usage: MessageUsage


class TokenCount(JsonObject):
    """Number of tokens in the prompt that the model would read."""

    input_tokens: Count


class MessageStart(JsonObject):
    """First event of a stream. The tokens from the cache are known only in `message_delta`."""

    type: Literal["message_start"]
    message: Message


class BlockStart(JsonObject):
    """Start of a content block, which is empty."""

    type: Literal["content_block_start"]
    index: Count
    content_block: ContentBlock


class TextBlockDelta(JsonObject):
    """A piece of a text."""

    type: Literal["text_delta"]
    text: str


class ThinkingDelta(JsonObject):
    """A piece of the reasoning."""

    type: Literal["thinking_delta"]
    thinking: str


class SignatureDelta(JsonObject):
    """Signature of the reasoning, before its block ends."""

    type: Literal["signature_delta"]
    signature: str


class InputJsonDelta(JsonObject):
    """A piece of a tool's input as JSON text."""

    type: Literal["input_json_delta"]
    partial_json: str


BlockDeltaPart: TypeAlias = TextBlockDelta | ThinkingDelta | SignatureDelta | InputJsonDelta


class BlockDelta(JsonObject):
    """A piece of a content block."""

    type: Literal["content_block_delta"]
    index: Count
    delta: BlockDeltaPart


class BlockStop(JsonObject):
    """End of a content block."""

    type: Literal["content_block_stop"]
    index: Count


class Stop(JsonObject):
    """Reason for the end of a message."""

    stop_reason: StopReason
    stop_sequence: str | None


class DeltaUsage(JsonObject):
    """Token counts of the whole message."""

    input_tokens: Count
    cache_creation_input_tokens: Count
    cache_read_input_tokens: Count
    output_tokens: Count
    output_tokens_details: OutputTokens


class MessageDelta(JsonObject):
    """End of a message: its stop reason and its usage."""

    type: Literal["message_delta"]
    delta: Stop
    usage: DeltaUsage


class MessageStop(JsonObject):
    """Last event of a successful stream."""

    type: Literal["message_stop"]


class Ping(JsonObject):
    """Sent while the prompt is queued or computed, and in every longer silence."""

    type: Literal["ping"]


MessageEvent: TypeAlias = MessageStart | BlockStart | BlockDelta | BlockStop | MessageDelta | MessageStop
StreamEvent: TypeAlias = MessageEvent | Ping | AnthropicError
