"""Record of one request: its use of the engine and its end, for metrics, usage, logs and traces."""

from collections.abc import Callable
from dataclasses import dataclass, field
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


class Operation(StrEnum):
    """Kind of a request, by OpenTelemetry's names (`gen_ai.operation.name`)."""

    CHAT = "chat"
    """Chat completions and responses."""
    TEXT_COMPLETION = "text_completion"
    """Continuation of a text."""
    EMBEDDINGS = "embeddings"
    """Vectors of texts."""
    RERANK = "rerank"
    """Relevance of documents."""

    @property
    def generates(self) -> bool:
        """True if it generates text, so that it waits for a slot."""
        return self in {Operation.CHAT, Operation.TEXT_COMPLETION}


@dataclass(slots=True, kw_only=True)
class RequestRecord:
    """One request for a model, whatever its API. Complete once `outcome` is set.

    Times are in seconds by the event loop's clock. A time is None if the request did not get so far.
    """

    caller: Caller
    """Sender of the request."""
    id: str = field(init=False)
    """Unique id, under which it is charged and stored as usage."""
    model: str
    """Name of the model in answers."""
    operation: Operation
    """Kind of the request."""
    stream: bool = False
    """True if the answer is streamed."""
    choices: int = 1
    """Number of choices of all prompts, of inputs to embed, or of documents to rank."""
    max_tokens: int | None = None
    """Maximum number of generated tokens of each choice: its own or the server's; unset without a limit."""
    sampling: Sampling | None = None
    """Sampling parameters; None if it generates no text."""
    arrived_at: float = 0.0
    """Time when the request was sent to the engine."""
    accepted_at: float | None = None
    """Time when an engine accepted it first."""
    accepted: bool = False
    """True once an engine has accepted it, while its caller waited."""
    started_at: float | None = None
    """Time when its first sequence left the queue. A request that generates no text has none."""
    first_token_at: float | None = None
    """Time when its first token arrived from the engine, of any choice. Also known without a stream."""
    ended_at: float = 0.0
    """Time when it ended and held nothing in the engine any more."""
    replayed: bool = False
    """True if it was sent to another engine after one had died. Its times but `accepted_at` are those of the last."""
    prompt_tokens: int = 0
    """Tokens of all its prompts or inputs that were read: computed or cached. After a cancel, those read until then.
    After a failure, those of the prompts with a finished choice."""
    cached_tokens: int = 0
    """Those of them with reused KV cells, of each prompt those of its first choice."""
    completion_tokens: int = 0
    """Generated tokens of all choices, until the cancel if there was one; after a failure, those of the finished ones.
    Tokens that the client did not read are counted."""
    longest_choice: int = 0
    """Generated tokens of the longest choice that finished."""
    wasted_tokens: int = 0
    """Tokens that a running step computed after the cancel, prompt and generated. They are in no other number. An
    aborted step counts none."""
    drafted_tokens: int = 0
    """Computed draft tokens of the finished choices."""
    accepted_draft_tokens: int = 0
    """Accepted draft tokens of these."""
    prefill_seconds: float = 0.0
    """Duration of the prefill steps of the finished choices. The times of phases follow from the times above."""
    decode_seconds: float = 0.0
    """Duration of the decode steps of these."""
    release_seconds: float | None = None
    """Time from the cancel to the release of all it held; unset without a cancel."""
    outcome: Outcome | None = None
    """End of the request; unset while it runs."""
    phase: str = ""
    """Phase at its end: `intake`, `queued`, `prefill`, `decode`, `embedding`, `restarting` while it waited for another
    engine, or `done`."""
    cause: str = ""
    """Cause of the end: a `Cause` if it was cancelled, otherwise an error's code. Empty if it finished."""
    finish_reasons: tuple[str, ...] = ()
    """Finish reason of each choice that finished."""

    def __post_init__(self) -> None:
        self.id = f"{self.caller.unique_id}-{next(self.caller.numbers)}"


RecordObserver: TypeAlias = Callable[[RequestRecord], None]
"""Called for each request when it is sent to the engine, when it is `accepted`, if it is, and when it has ended
(`outcome` is set).

It runs in the event loop, so that it must be short. An exception is logged.
"""
