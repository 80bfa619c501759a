"""A response request after its validation, reduced to the parts that its answer needs."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerOptions:
    """The fields of a request that shape its answer."""

    echo: bytes
    """Fields that every answer repeats, as a JSON object."""
    background: bool
    """True if the response runs in the background."""
    logprobs: bool
    """True if the answer has log-probabilities."""
    caches: bool
    """True if the prompt is cached."""
    previous_id: str | None
    """Id of the previous response in the conversation."""
