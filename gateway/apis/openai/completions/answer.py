"""Answers of `/v1/completions`."""

from typing import Literal, NotRequired

from engine import FinishReason
from gateway.apis.answers.shapes import (
    Count,
    JsonObject,
    LegacyLogprobs,
    PromptProgress,
    Stop,
    Timestamp,
    Timings,
    Usage,
    UsageUntilNow,
)


class CompletionChoice(JsonObject):
    """One generated text."""

    index: Count
    text: str
    logprobs: LegacyLogprobs | None
    finish_reason: FinishReason
    stop_reason: Stop
    token_ids: NotRequired[list[Count]]
    prompt_token_ids: NotRequired[list[Count] | None]


class CompletionHead(JsonObject):
    """Fields that a whole completion and the chunks of a stream share."""

    id: str
    object: Literal["text_completion"]
    created: Timestamp
    model: str
    system_fingerprint: str
    timings: NotRequired[Timings]


class Completion(CompletionHead):
    """A whole completion."""

    choices: list[CompletionChoice]
    usage: Usage


class CompletionPart(JsonObject):
    """One choice's part of a chunk."""

    index: Count
    text: str
    logprobs: LegacyLogprobs | None
    finish_reason: FinishReason | None
    stop_reason: NotRequired[Stop]
    token_ids: NotRequired[list[Count]]
    prompt_token_ids: NotRequired[list[Count] | None]


class CompletionChunk(CompletionHead):
    """An event of a stream. With `include_usage`, `usage` is null except in the last chunk, which has no choices.

    With `continuous_usage_stats`, the other chunks have that of their choice until now.
    """

    choices: list[CompletionPart]
    usage: NotRequired[Usage | UsageUntilNow | None]
    prompt_progress: NotRequired[PromptProgress]
