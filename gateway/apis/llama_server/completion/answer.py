"""Answers of `/completion`."""

from typing import Annotated, Any, Literal, NotRequired, TypeAlias

from pydantic import Field

from gateway.apis.answers.shapes import Count, JsonObject, Logprob, PromptProgress, Timings
from gateway.apis.llama_server.generation_settings import GenerationSettings

Byte: TypeAlias = Annotated[int, Field(ge=0, le=255)]
Probability: TypeAlias = Annotated[float, Field(ge=0, le=1)]
StopType: TypeAlias = Literal["eos", "word", "limit"]


class TokenProb(JsonObject):
    """A token with its log-probability, or after the samplers with its probability."""

    id: Count
    token: str
    bytes: list[Byte]
    logprob: NotRequired[Logprob]
    prob: NotRequired[Probability]


class ChosenProb(TokenProb):
    """The chosen token, and the likeliest ones at its position."""

    top_logprobs: NotRequired[list[TokenProb]]
    top_probs: NotRequired[list[TokenProb]]


class NativePart(JsonObject):
    """An event of a stream: one token with its text, or the progress of the prompt."""

    index: Count
    content: str
    tokens: list[Count]
    stop: Literal[False]
    id_slot: int
    tokens_predicted: Count
    tokens_evaluated: Count
    timings: NotRequired[Timings]
    prompt_progress: NotRequired[PromptProgress]
    completion_probabilities: NotRequired[list[ChosenProb]]


class NativeCompletion(JsonObject):
    """A whole text, and the last event of a stream, where `content` is empty.

    `truncated` says that the slot was full, and `tokens_cached` counts the tokens in the slot at the end.
    """

    index: Count
    content: str
    tokens: list[Count]
    id_slot: int
    stop: Literal[True]
    model: str
    tokens_predicted: Count
    tokens_evaluated: Count
    generation_settings: GenerationSettings
    prompt: str
    has_new_line: bool
    truncated: bool
    stop_type: StopType
    stopping_word: str
    tokens_cached: Count
    timings: Timings
    completion_probabilities: NotRequired[list[ChosenProb]]


ChosenFields: TypeAlias = Annotated[dict[str, Any], Field(json_schema_extra={"properties": {"stop": {"const": True}}})]
"""The fields that a request has asked for. Those of inner objects have a path, such as `timings/prompt_n`.

Its schema does not allow a `NativePart`.
"""
NativeAnswer: TypeAlias = NativeCompletion | ChosenFields
"""Answer for one text, and last event of a stream."""
NativeAnswers: TypeAlias = NativeAnswer | list[NativeAnswer]
"""Answer of `/completion`: one text, or an array of several."""
