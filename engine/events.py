"""Events and metrics that the engine sends. A closed set of frozen values."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, TypeAlias

from msgspec import Struct


class FinishReason(StrEnum):
    """Reason for the end of a choice, by OpenAI's names."""

    STOP = "stop"
    LENGTH = "length"


class _Event(Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """The encoding of every event: an array of the class name and the fields."""


class Started(_Event, frozen=True):
    """The request left the queue: its first sequence holds a slot."""


class Alternative(Struct, frozen=True, array_like=True):
    """A candidate for the position of a token."""

    id: int
    """Token id."""
    piece: bytes
    """Its bytes; the name of a control token."""
    logprob: float
    """Natural logarithm of its probability under the model's unchanged distribution."""


class TokenDetail(Struct, frozen=True, array_like=True):
    """One token of a choice, sent if the request asks for `logprobs` or `token_ids`."""

    id: int
    """Token id."""
    piece: bytes
    """Its bytes, which may be a part of a character."""
    logprob: float | None = None
    """As in `Alternative`; None if not requested, and for the first token of a prompt."""
    top: tuple[Alternative, ...] = ()
    """The most probable alternatives in descending order, as many as requested."""


class Text(_Event, frozen=True):
    """New text of a streamed choice: whole characters, never a part of a stop string."""

    choice: int
    """Index of the choice."""
    text: str
    """The text since the choice's last event; not empty."""
    details: tuple[TokenDetail, ...] = ()
    """Details of the tokens whose text began in it, if requested. Tokens behind a stop string are never sent."""


class Finished(_Event, frozen=True):
    """Successful end of a choice. Its last event."""

    choice: int
    """Index of the choice."""
    text: str
    """The text since the choice's last event; all of it if the request does not stream."""
    reason: FinishReason
    """Reason for the end."""
    tokens: int
    """Generated tokens, including the one that ended it."""
    cached: int
    """Prompt tokens whose cells were reused."""
    details: tuple[TokenDetail, ...] = ()
    """As in `Text`."""
    stop: str | int | None = None
    """The stop string or stop token that ended it, if any."""
    prompt_seconds: float = 0.0
    """Duration of the passes that computed its prompt."""
    decode_seconds: float = 0.0
    """Duration of its decode passes."""
    drafted: int = 0
    """Draft tokens that were computed."""
    accepted: int = 0
    """Draft tokens that were accepted, each of which saved a pass."""


class Failed(_Event, frozen=True):
    """Failure of the whole request; no other event follows. Its slots are free."""

    message: str
    """One sentence for the caller."""
    code: str
    """A stable name for programs."""


class Released(_Event, frozen=True):
    """A cancelled request has released everything; no other event follows."""

    phase: str
    """State at the cancel: `intake`, `queued`, `prefill`, `decode`, `embedding`, `restarting` while it waited for
    another engine, or `gone` if it had ended before."""
    tokens: int
    """Tokens generated in all."""
    freed: int
    """KV cells freed."""


class Embedded(_Event, frozen=True):
    """An input of an embedding request was embedded. Its only event."""

    input: int
    """Index of the input."""
    vector: bytes
    """As in `EmbeddingResult`."""


@dataclass(frozen=True, slots=True)
class EmbeddingResult:
    """The result of an embedding request."""

    vectors: tuple[bytes, ...]
    """One for each input, in order: `ModelInfo.embedding_size` numbers of little-endian float32, with length 1."""
    tokens: tuple[int, ...]
    """Tokens of each input."""


GenerationEvent: TypeAlias = Started | Text | Finished | Failed | Released
Event: TypeAlias = GenerationEvent | Embedded


@dataclass(frozen=True, slots=True)
class EngineMetrics:
    """The engine's state, and its counters since it started."""

    slots: int = 0
    """Sequences that can run at once; `free` + `held` == `slots`."""
    free: int = 0
    """Free slots."""
    held: int = 0
    """Slots leased to a running sequence."""
    waiting: int = 0
    """Sequences in the queue."""
    active_tokens: int = 0
    """KV cells of running sequences."""
    cached_tokens: int = 0
    """KV cells kept for their prefix."""
    steps: int = 0
    """Passes through the model."""
    step_seconds: float = 0.0
    """Duration of the last pass."""
    rows_decoded: int = 0
    """Rows of decode passes that drew a token."""
    prompt_tokens: int = 0
    """All other tokens computed, without draft tokens."""
    aborted: int = 0
    """Passes aborted because all their requests were cancelled."""
    drafted: int = 0
    """Draft tokens computed."""
    accepted: int = 0
    """Draft tokens accepted."""
    stored_tokens: int = 0
    """Tokens of the prefixes in host memory."""
    saved_tokens: int = 0
    """Tokens saved to host memory so far."""
    restored_tokens: int = 0
    """Tokens restored from host memory so far."""
    embedding_waiting: int = 0
    """Inputs of embedding requests without a result yet."""
    embeddings: int = 0
    """Inputs embedded."""
    embedding_tokens: int = 0
    """Tokens computed for embeddings."""


@dataclass(frozen=True, slots=True)
class SlotInfo:
    """State of one slot."""

    id: int
    """The slot's `seq_id`, from 0."""
    state: Literal["idle", "prefill", "decode"]
    """Phase of the sequence that holds it."""
    request_id: str | None
    """Id of the request that holds it, or None."""
    active_tokens: int
    """KV cells of the running sequence."""
    cached_tokens: int
    """KV cells kept for their prefix; 0 while a sequence runs."""


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """Description of the loaded model."""

    description: str
    """Architecture, size and quantisation, as described by llama.cpp."""
    vocabulary: int
    """Number of token ids; ids run from 0."""
    context: int
    """Tokens of a slot."""
    trained_context: int
    """Tokens the model was trained on."""
    slots: int
    """Sequences that can run at once."""
    parameters: int
    """Number of weights."""
    size: int
    """Bytes of the weights."""
    architecture: str = ""
    """Name of its architecture in llama.cpp."""
    generates: bool = True
    """True if it generates text; otherwise it only computes embeddings."""
    embedding_size: int = 0
    """Numbers in an embedding."""
    infills: bool = False
    """True if it has the tokens that `Infill` needs."""
    chat_template: str | None = None
    """The Jinja template in its file, if any."""
    tool_template: str | None = None
    """The Jinja template for requests with tools in its file, if any."""
    bos: str = ""
    """Text of the beginning-of-sequence token; empty without one."""
    eos: str = ""
    """Text of the end-of-sequence token; empty without one."""
    special_tokens: dict[str, int] = field(default_factory=dict)
    """Ids of the control tokens and of the marks that the model's makers defined, by name."""
