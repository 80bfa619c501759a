"""What the routes of responses answer."""

from typing import Annotated, Any, Literal, NotRequired, TypeAlias

from pydantic import ConfigDict, Field, with_config

from gateway.apis.answers.shapes import Answer, Count, Timestamp
from gateway.apis.openai.chat.answer import ChosenLogprob
from gateway.apis.openai.responses.tools import Choice

ItemStatus: TypeAlias = Literal["in_progress", "completed", "incomplete"]


class OutputText(Answer):
    """What the model says."""

    type: Literal["output_text"]
    text: str
    annotations: Annotated[list[Any], Field(max_length=0)]
    logprobs: list[ChosenLogprob]


class ThoughtText(Answer):
    """What the model thinks."""

    type: Literal["reasoning_text"]
    text: str


class OutputMessage(Answer):
    """A message of the model's."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    status: ItemStatus
    content: list[OutputText]


class OutputReasoning(Answer):
    """The model's thinking, in its own words."""

    id: str
    type: Literal["reasoning"]
    status: ItemStatus
    summary: Annotated[list[Any], Field(max_length=0)]
    content: list[ThoughtText]


class OutputCall(Answer):
    """A call that the model makes; the arguments are JSON text, as it wrote them."""

    id: str
    type: Literal["function_call"]
    status: ItemStatus
    call_id: str
    name: str
    arguments: str


OutputItem: TypeAlias = OutputMessage | OutputReasoning | OutputCall


@with_config(ConfigDict(extra="ignore"))
class StoredItem(Answer):
    """An item of a request's input, with the fields of its kind."""

    id: str
    type: Literal["message", "reasoning", "function_call", "function_call_output"]
    status: ItemStatus


class ItemList(Answer):
    """A page of items."""

    object: Literal["list"]
    data: list[StoredItem]
    has_more: bool
    first_id: str
    last_id: str


class ResponseError(Answer):
    """Why a response failed."""

    code: Literal["invalid_prompt", "rate_limit_exceeded", "server_error"]
    message: str


class Incomplete(Answer):
    """Why a response is incomplete."""

    reason: Literal["max_output_tokens"]


class ToldReasoning(Answer):
    """As they were asked for."""

    effort: str | None
    summary: str | None


class ToldFormat(Answer):
    """Text, or any JSON object."""

    type: Literal["text", "json_object"]


class ToldSchemaFormat(Answer):
    """What a schema allows."""

    type: Literal["json_schema"]
    name: str
    description: NotRequired[str]
    schema: dict[str, Any]
    strict: bool


class ToldText(Answer):
    """As they were asked for."""

    format: ToldFormat | ToldSchemaFormat
    verbosity: str | None


class ToldTool(Answer):
    """A function that the model may call."""

    type: Literal["function"]
    name: str
    description: str | None
    parameters: dict[str, Any]
    strict: bool


class InputDetails(Answer):
    """Of the input's tokens, those that were not computed again, and those that later requests may reuse."""

    cached_tokens: Count
    cache_write_tokens: Count


class OutputDetails(Answer):
    """Of the output's tokens, those of its reasoning."""

    reasoning_tokens: Count


class ResponseUsage(Answer):
    """What a response cost."""

    input_tokens: Count
    input_tokens_details: InputDetails
    output_tokens: Count
    output_tokens_details: OutputDetails
    total_tokens: Count


class Response(Answer):
    """A response, ended or not, and the fields of its request that it repeats."""

    id: str
    object: Literal["response"]
    created_at: Timestamp
    model: str
    status: Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]
    completed_at: Timestamp | None
    error: ResponseError | None
    incomplete_details: Incomplete | None
    output: list[OutputItem]
    usage: NotRequired[ResponseUsage]
    background: bool
    instructions: str | None
    max_output_tokens: int | None
    max_tool_calls: int | None
    metadata: dict[str, str]
    parallel_tool_calls: bool
    previous_response_id: str | None
    prompt_cache_key: str | None
    reasoning: ToldReasoning
    safety_identifier: str | None
    service_tier: Literal["default"]
    store: bool
    temperature: float
    text: ToldText
    tool_choice: Choice
    tools: list[ToldTool]
    top_logprobs: int
    top_p: float
    truncation: Literal["disabled"]
    user: NotRequired[str]


class Deleted(Answer):
    """A response that is stored no longer."""

    id: str
    object: Literal["response"]
    deleted: Literal[True]
