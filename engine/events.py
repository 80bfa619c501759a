"""Events and metrics that the engine sends: a closed set of immutable types."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from typing import Self, TypeAlias

import msgspec
from msgspec import Struct


class FinishReason(StrEnum):
    """Finish reason of a choice, by OpenAI's names."""

    STOP = "stop"
    LENGTH = "length"


class _Event(Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """Base class of the events. Encodes them as an array of the class name and the fields.

    Python's garbage collector leaves them out, because none can be a part of a reference cycle.
    """


class Started(_Event, frozen=True):
    """Admission of a request: its first sequence left the queue and holds a slot."""


class FirstToken(_Event, frozen=True):
    """First generated token of a request, of any choice. Its text may come later, if it is part of a character."""


class Alternative(Struct, frozen=True, array_like=True, gc=False):
    """A candidate token at one position."""

    id: int
    """Token id."""
    piece: bytes
    """Bytes of the token; the name of a control token."""
    logprob: float
    """Natural logarithm of its probability under the model's unmodified distribution."""


class TokenDetail(Struct, frozen=True, array_like=True, gc=False):
    """One token of a choice, sent if the request sets `logprobs` or `token_ids`."""

    id: int
    """Token id."""
    piece: bytes
    """Bytes of the token, which may be part of a character."""
    logprob: float | None = None
    """Log-probability as in `Alternative`; unset if not requested, and for the first token of a prompt."""
    top: tuple[Alternative, ...] = ()
    """The most probable alternatives in descending order, as many as requested."""


class TokenRun(Struct, frozen=True, array_like=True):
    """Consecutive tokens of one of several tokenised texts."""

    text: int
    """Index of the text."""
    ids: tuple[int, ...]
    """Token ids."""
    pieces: tuple[bytes, ...] = ()
    """Bytes of each token, which may be part of a character; the name of a control token. Empty unless requested."""


class PromptProgress(Struct, frozen=True, array_like=True):
    """Progress of the prompt of one choice."""

    total: int
    """Number of its tokens."""
    cached: int
    """Number of those with reused KV cells."""
    processed: int
    """Number of those that were read until now, cached or computed."""
    seconds: float
    """Duration of its prefill steps, in seconds."""


class Text(_Event, frozen=True):
    """New text of a choice: whole characters, never part of a stop string. Or progress of its prompt.

    A choice that is not streamed has it only if its tokens have many details.
    """

    choice: int
    """Index of the choice."""
    text: str
    """Text since the choice's last event; empty only if the event is about the prompt."""
    details: tuple[TokenDetail, ...] = ()
    """Details of the tokens that start in `text`, if requested. Tokens after a stop string are never sent."""
    decode_seconds: float = 0.0
    """Duration of its decode steps until now, in seconds, if the request asks for progress."""
    progress: PromptProgress | None = None
    """Progress of the prompt, if the request asks for it."""


class Finished(_Event, frozen=True):
    """Successful end of a choice; its last event."""

    choice: int
    """Index of the choice."""
    text: str
    """Text since the choice's last event."""
    reason: FinishReason
    """Finish reason."""
    tokens: int
    """Number of generated tokens, including the one that ended the choice."""
    cached: int
    """Number of prompt tokens with reused KV cells."""
    details: tuple[TokenDetail, ...] = ()
    """Details of the tokens that start in `text`, as in `Text`."""
    stop: str | int | None = None
    """Stop string or stop token that ended the choice, if any."""
    prompt_seconds: float = 0.0
    """Duration of the prefill steps of its prompt, in seconds."""
    decode_seconds: float = 0.0
    """Duration of its decode steps, in seconds."""
    drafted: int = 0
    """Number of draft tokens that were computed."""
    accepted: int = 0
    """Number of accepted draft tokens. Each one saved a decode step."""
    discarded: int = 0
    """Number of its tokens that were discarded because the slot was full."""
    slot: int = -1
    """`seq_id` of the slot that it held last."""
    reasoning: int = 0
    """Number of generated tokens inside the reasoning, without those of its tags, if the request has its place."""
    last: TokenDetail | None = None
    """Details of the end token or stop token that ended the choice, if requested. It is not part of the text."""

    @property
    def all_details(self) -> tuple[TokenDetail, ...]:
        """`details`, and `last` behind them."""
        return self.details if self.last is None else (*self.details, self.last)

    def after(self, texts: Sequence[Text]) -> Self:
        """Return the end with the choice's earlier texts before its own."""
        text = "".join([*(part.text for part in texts), self.text])
        details = chain(*(part.details for part in texts), self.details)
        return msgspec.structs.replace(self, text=text, details=tuple(details))


class Failed(_Event, frozen=True):
    """Failure of the whole request; its last event. Its slots are free."""

    message: str
    """One sentence for the caller."""
    code: str
    """Stable identifier for programs."""
    param: str | None = None
    """Field of the request that is the reason; None for a failure of the engine."""


class Released(_Event, frozen=True):
    """Release of everything that a cancelled request held; its last event."""

    phase: str
    """Phase at the time of the cancel: `intake`, `queued`, `prefill`, `decode`, `embedding`, `restarting` while it
    waited for another engine, or `gone` if it had already ended."""
    tokens: int
    """Total number of generated tokens."""
    freed: int
    """Number of freed KV cells."""
    prompt_tokens: int = 0
    """Number of prompt tokens that were read until the cancel, computed or cached. Each prompt counts once."""
    cached: int = 0
    """Number of these with reused KV cells: of each prompt those of its first choice."""
    wasted: int = 0
    """Number of tokens that a running step computed for the request after the cancel. They are in no other number.
    An aborted step counts none."""

    def after_step(self, wasted: int) -> "Released":
        """Return the release after the step that ran during the cancel and computed `wasted` tokens."""
        return msgspec.structs.replace(self, wasted=wasted)


class Embedded(_Event, frozen=True):
    """Embedding of one input; its only event."""

    input: int
    """Index of the input."""
    vector: bytes
    """Vector in the encoding of `EmbeddingResult.vectors`."""


@dataclass(frozen=True, slots=True)
class EmbeddingResult:
    """Result of an embedding request."""

    vectors: tuple[bytes, ...]
    """Numbers of each input, in order, as little-endian float32: a unit vector of `ModelInfo.embedding_size` numbers,
    or the scores of a document, of which the first one is its relevance."""
    tokens: tuple[int, ...]
    """Number of tokens of each input."""


GenerationEvent: TypeAlias = Started | FirstToken | Text | Finished | Failed | Released
Event: TypeAlias = GenerationEvent | Embedded
