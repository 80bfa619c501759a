"""Record of one request: its use of the engine and its end, for metrics, usage, logs and traces."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from engine import Sampling
from gateway.middleware.caller import Caller


class Outcome(StrEnum):
    """End of a request. Every request that a model was asked for has exactly one."""

    FINISHED = "finished"
    """Every part of it ended successfully."""
    FAILED = "failed"
    """The engine or this server failed."""
    CANCELLED = "cancelled"
    """It ended early: the client left, read too slowly, or a deadline passed, or the server stopped."""
    REFUSED = "refused"
    """It was never accepted by the engine."""


@dataclass(slots=True, kw_only=True)
class RequestRecord:
    """One request for a model, whatever its API. Complete once `outcome` is set.

    Times are in seconds by the event loop's clock. A time is None if the request did not get so far.
    """

    caller: Caller
    """Sender of the request."""
    model: str
    """Name of the model in answers."""
    operation: str
    """`chat`, `text_completion` or `embeddings`, as OpenTelemetry's `gen_ai.operation.name`."""
    stream: bool = False
    """True if the answer is streamed."""
    choices: int = 1
    """Number of choices, or of inputs to embed."""
    max_tokens: int | None = None
    """Maximum number of generated tokens of each choice; None without a limit."""
    sampling: Sampling | None = None
    """Sampling parameters; None for embeddings."""
    arrived_at: float = 0.0
    """The request was sent to the engine."""
    accepted_at: float | None = None
    """The engine accepted it."""
    started_at: float | None = None
    """Its first sequence left the queue."""
    first_token_at: float | None = None
    """Its first text arrived from the engine."""
    ended_at: float = 0.0
    """It ended, and held nothing any more."""
    prompt_tokens: int = 0
    """Tokens of all its prompts or inputs that were read: computed or cached."""
    cached_tokens: int = 0
    """Of these, tokens with reused KV cells."""
    completion_tokens: int = 0
    """Generated tokens of all choices."""
    wasted_tokens: int = 0
    """Tokens that were computed after the cancel, prompt and generated. They are in no other number."""
    drafted_tokens: int = 0
    """Computed draft tokens."""
    accepted_draft_tokens: int = 0
    """Accepted draft tokens."""
    prefill_seconds: float = 0.0
    """Duration of its prefill steps."""
    decode_seconds: float = 0.0
    """Duration of its decode steps."""
    release_seconds: float | None = None
    """Time from the cancel to the release of all it held; None without a cancel."""
    outcome: Outcome | None = None
    """End of the request; None while it runs."""
    phase: str = ""
    """Phase at its end: `intake`, `queued`, `prefill`, `decode`, `embedding`, `restarting`, or `done`."""
    cause: str = ""
    """Cause of the end: `client_left`, `slow_reader`, `deadline`, `queue_timeout`, `shutdown`, or an error's code.
    Empty if it finished."""
    finish_reasons: tuple[str, ...] = ()
    """Finish reason of each choice that finished."""


RecordObserver: TypeAlias = Callable[[RequestRecord], None]
"""Called twice for each request: when it is sent to the engine (`outcome` is None), and when it has ended.

It runs in the event loop, so that it must be short, and it must not raise.
"""
