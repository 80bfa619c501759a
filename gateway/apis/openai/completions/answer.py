"""Answers of `/v1/completions`."""

from typing import Literal, NotRequired

from engine import FinishReason
from gateway.apis.answers.shapes import Answer, Count, LegacyLogprobs, Stop, Timestamp, Timings, Usage


class TokenIds(Answer):
    """The tokens of a text; in the first chunk of a choice those of its prompt, too."""

    token_ids: NotRequired[list[Count]]
    prompt_token_ids: NotRequired[list[Count] | None]


class CompletionChoice(TokenIds):
    """One text."""

    index: Count
    text: str
    logprobs: LegacyLogprobs | None
    finish_reason: FinishReason
    stop_reason: Stop


class CompletionHead(Answer):
    """The fields that begin an answer, and each chunk of a stream."""

    id: str
    object: Literal["text_completion"]
    created: Timestamp
    model: str
    system_fingerprint: str


class Completion(CompletionHead):
    """A whole answer."""

    choices: list[CompletionChoice]
    usage: Usage
    timings: NotRequired[Timings]


class CompletionPart(TokenIds):
    """More of one text."""

    index: Count
    text: str
    logprobs: LegacyLogprobs | None
    finish_reason: FinishReason | None
    stop_reason: NotRequired[Stop]


class CompletionChunk(CompletionHead):
    """An event of a stream. With `include_usage`, `usage` is null in all but the last, which has no choices."""

    choices: list[CompletionPart]
    usage: NotRequired[Usage | None]
    timings: NotRequired[Timings]
