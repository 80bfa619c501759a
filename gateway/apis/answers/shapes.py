"""Types of answers. Encoders return them, and the OpenAPI document describes them."""

from typing import Annotated, Literal, TypeAlias

from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict

Count: TypeAlias = Annotated[int, Field(ge=0)]
Time: TypeAlias = Annotated[float, Field(ge=0)]
Timestamp: TypeAlias = Annotated[int, Field(description="Seconds since 1970.")]
Logprob: TypeAlias = Annotated[float, Field(le=0)]
Stop: TypeAlias = Annotated[str | int | None, Field(description="The stop string or token that ended the choice.")]


@with_config(ConfigDict(extra="forbid"))
class JsonObject(TypedDict):
    """An object without other fields than the declared ones."""


class Error(JsonObject):
    """An error."""

    message: str
    type: Literal["invalid_request_error", "rate_limit_error", "insufficient_quota", "server_error"]
    param: Annotated[str | None, Field(description="Name of the invalid field.")]
    code: Annotated[str | None, Field(description="A stable error code for programs.")]


class ErrorAnswer(JsonObject):
    """The error of a failed request."""

    error: Error


class PromptDetails(JsonObject):
    """Counts of prompt tokens that were found in the cache."""

    cached_tokens: Count


class CompletionDetails(JsonObject):
    """Counts of tokens in the reasoning, and of accepted and rejected draft tokens."""

    reasoning_tokens: Count
    accepted_prediction_tokens: Count
    rejected_prediction_tokens: Count


class UsageUntilNow(JsonObject):
    """Token counts of one choice of a stream until now, and of its prompt."""

    prompt_tokens: Count
    completion_tokens: Count
    total_tokens: Count


class Usage(JsonObject):
    """Token counts of the prompts, each counted once, and of all generated text."""

    prompt_tokens: Count
    completion_tokens: Count
    total_tokens: Count
    prompt_tokens_details: PromptDetails
    completion_tokens_details: CompletionDetails


class Timings(JsonObject):
    """Times of the model's passes for the request, with llama-server's field names."""

    cache_n: Count
    prompt_n: Count
    prompt_ms: Time
    prompt_per_token_ms: Time
    prompt_per_second: Time
    predicted_n: Count
    predicted_ms: Time
    predicted_per_token_ms: Time
    predicted_per_second: Time
    draft_n: Count
    draft_n_accepted: Count
    truncated: bool


class PromptProgress(JsonObject):
    """Tokens of a prompt: all, those found in the cache, and those read until now. The time is that of the reading."""

    total: Count
    cache: Count
    processed: Count
    time_ms: Time


class TokenLogprob(JsonObject):
    """A token and its log-probability at one position."""

    token: str
    logprob: Logprob
    bytes: list[Annotated[int, Field(ge=0, le=255)]]


class ChosenLogprob(TokenLogprob):
    """The chosen token, and the likeliest alternatives at its position."""

    top_logprobs: list[TokenLogprob]


class LegacyLogprobs(JsonObject):
    """Four parallel lists with one entry per token."""

    text_offset: list[Count]
    token_logprobs: list[Logprob | None]
    tokens: list[str]
    top_logprobs: list[dict[str, Logprob | None] | None]
