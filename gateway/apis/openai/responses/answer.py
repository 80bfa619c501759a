"""Answers of the response endpoints."""

from typing import Any, Literal, NotRequired, TypeAlias

from gateway.apis.answers.shapes import Count, JsonObject, Timestamp
from gateway.apis.openai.responses.items import Item, OutputItem


class ResponseError(JsonObject):
    """The error of a failed response."""

    code: Literal["invalid_prompt", "rate_limit_exceeded", "server_error"]
    message: str


class Incomplete(JsonObject):
    """The reason why a response is incomplete."""

    reason: Literal["max_output_tokens"]


class InputDetails(JsonObject):
    """Counts of input tokens that were read from the cache, and of those that were added to it."""

    cached_tokens: Count
    cache_write_tokens: Count


class OutputDetails(JsonObject):
    """Count of output tokens in the reasoning."""

    reasoning_tokens: Count


class ResponseUsage(JsonObject):
    """Token counts of a response."""

    input_tokens: Count
    input_tokens_details: InputDetails
    output_tokens: Count
    output_tokens_details: OutputDetails
    total_tokens: Count


class ResponseProgress(JsonObject):
    """The state of a response, and its result after the end."""

    status: Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]
    completed_at: Timestamp | None
    error: ResponseError | None
    incomplete_details: Incomplete | None
    usage: NotRequired[ResponseUsage]


class ResponseHead(ResponseProgress):
    """The fields of a response before its output."""

    id: str
    object: Literal["response"]
    created_at: Timestamp
    model: str
    temperature: float
    top_p: float


class ResponseReasoning(JsonObject):
    """The request's reasoning options."""

    effort: str | None
    summary: str | None


class ResponseTextFormat(JsonObject):
    """The format of plain text or of any JSON object."""

    type: Literal["text", "json_object"]


class ResponseSchemaFormat(JsonObject):
    """The format of JSON that matches a schema."""

    type: Literal["json_schema"]
    name: str
    description: NotRequired[str]
    schema: dict[str, Any]
    strict: bool


class ResponseTextOptions(JsonObject):
    """The request's text options."""

    format: ResponseTextFormat | ResponseSchemaFormat
    verbosity: str | None


class ResponseTool(JsonObject):
    """A function that the model may call."""

    type: Literal["function"]
    name: str
    description: str | None
    parameters: dict[str, Any]
    strict: bool


class ResponseTextInput(JsonObject):
    """Any text as the input of a custom tool."""

    type: Literal["text"]


class ResponseGrammarInput(JsonObject):
    """The grammar of the input of a custom tool."""

    type: Literal["grammar"]
    syntax: Literal["lark", "regex"]
    definition: str


class ResponseCustomTool(JsonObject):
    """A custom tool that the model may call."""

    type: Literal["custom"]
    name: str
    description: NotRequired[str]
    format: ResponseTextInput | ResponseGrammarInput


class ResponseNamespace(JsonObject):
    """Tools that the model may call, grouped under a name."""

    type: Literal["namespace"]
    name: str
    description: str
    tools: list[ResponseTool | ResponseCustomTool]


class ToolChoiceCustom(JsonObject):
    """A custom tool that the model must call, or may choose."""

    type: Literal["custom"]
    name: str
    namespace: NotRequired[str]


class ToolChoiceFunction(JsonObject):
    """A function that the model must call, or may choose."""

    type: Literal["function"]
    name: str
    namespace: NotRequired[str]


class ToolChoiceNamespace(JsonObject):
    """A namespace whose tools the model may choose."""

    type: Literal["namespace"]
    name: str


class ToolChoiceHosted(JsonObject):
    """A tool that OpenAI runs itself. The model does not have it."""

    type: str


class ToolChoiceAllowed(JsonObject):
    """The tools among which the model may or must choose."""

    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: list[ToolChoiceFunction | ToolChoiceCustom | ToolChoiceNamespace | ToolChoiceHosted]


ResponseToolChoice: TypeAlias = (
    Literal["none", "auto", "required"] | ToolChoiceFunction | ToolChoiceCustom | ToolChoiceAllowed
)


class ConversationEcho(JsonObject):
    """The conversation that a response continues."""

    id: str


class RequestEcho(JsonObject):
    """The fields of the request that a response repeats."""

    background: bool
    conversation: NotRequired[ConversationEcho]
    instructions: str | None
    max_output_tokens: int | None
    max_tool_calls: int | None
    metadata: dict[str, str]
    parallel_tool_calls: bool
    previous_response_id: str | None
    prompt_cache_key: str | None
    reasoning: ResponseReasoning
    safety_identifier: str | None
    service_tier: Literal["default"]
    store: bool
    text: ResponseTextOptions
    tool_choice: ResponseToolChoice
    tools: list[ResponseTool | ResponseCustomTool | ResponseNamespace]
    top_logprobs: int
    truncation: Literal["auto", "disabled"]
    user: NotRequired[str]


class Response(ResponseHead, RequestEcho):
    """A response in any state."""

    output: list[OutputItem]


class ItemList(JsonObject):
    """A page of items."""

    object: Literal["list"]
    data: list[Item]
    has_more: bool
    first_id: str
    last_id: str


class Deleted(JsonObject):
    """The confirmation that a response was deleted."""

    id: str
    object: Literal["response"]
    deleted: Literal[True]
