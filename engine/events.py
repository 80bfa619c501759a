"""What the engine tells of a request, and of itself. A closed set of frozen values."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias


class FinishReason(StrEnum):
    """Why a choice ended, by OpenAI's names."""

    STOP = "stop"
    LENGTH = "length"


@dataclass(frozen=True, slots=True)
class Started:
    """The request left the queue: its first sequence holds a slot."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """A token that could have stood in a place, itself included.

    Attributes:
        id: the token.
        piece: the bytes it stands for; a control token's name.
        logprob: natural logarithm of its probability under the model's unchanged distribution.
    """

    id: int
    piece: bytes
    logprob: float


@dataclass(frozen=True, slots=True)
class TokenDetail:
    """One token of a choice, told where the request asks for `logprobs` or `token_ids`.

    Attributes:
        id: the token.
        piece: the bytes it stands for, perhaps part of a character.
        logprob: as in `Alternative`; None where it was not asked for, and for a prompt's first token.
        top: the likeliest alternatives in its place, likeliest first, as many as were asked for.
    """

    id: int
    piece: bytes
    logprob: float | None = None
    top: tuple[Alternative, ...] = ()


@dataclass(frozen=True, slots=True)
class Text:
    """New text of a choice that streams; whole characters, never part of a stop string.

    Attributes:
        choice: index of the choice.
        text: what came since the choice's last event; not empty.
        details: of the tokens whose text began in it, if asked for. What lies behind a stop string is never told.
    """

    choice: int
    text: str
    details: tuple[TokenDetail, ...] = ()


@dataclass(frozen=True, slots=True)
class Finished:
    """A choice ended well. Its last event.

    Attributes:
        choice: index of the choice.
        text: what came since the choice's last event; all of it where the request does not stream.
        reason: why it ended.
        tokens: tokens generated in all, the one that ended it included.
        cached: prompt tokens that were resident and not computed again.
        details: as in `Text`.
        stop: the stop string or stop token that ended it, if one did.
        prompt_seconds: time of the passes that computed its prompt.
        decode_seconds: time of the passes that computed one token of it each, and guesses behind it.
        drafted: guesses at its tokens that were computed.
        accepted: how many of them were right, and so cost no pass of their own.
    """

    choice: int
    text: str
    reason: FinishReason
    tokens: int
    cached: int
    details: tuple[TokenDetail, ...] = ()
    stop: str | int | None = None
    prompt_seconds: float = 0.0
    decode_seconds: float = 0.0
    drafted: int = 0
    accepted: int = 0


@dataclass(frozen=True, slots=True)
class Failed:
    """The whole request failed; no other event follows. What its sequences held is free.

    Attributes:
        message: one sentence for the person who sent the request.
        code: a stable name for programs.
    """

    message: str
    code: str


@dataclass(frozen=True, slots=True)
class Released:
    """A cancelled request holds nothing any more; no other event follows.

    Attributes:
        phase: where it was when the cancel arrived: `intake`, `queued`, `prefill`, `decode`, `embedding`, `restarting`
            where it waited for another engine, or `gone` where it had ended by itself.
        tokens: tokens generated for it in all.
        freed: KV cells it held, now free.
    """

    phase: str
    tokens: int
    freed: int


@dataclass(frozen=True, slots=True)
class Embedded:
    """An input of an embedding request was embedded. Its only event.

    Attributes:
        input: index of the input.
        vector: as in `EmbeddingResult`.
    """

    input: int
    vector: bytes


@dataclass(frozen=True, slots=True)
class EmbeddingResult:
    """What came of an embedding request.

    Attributes:
        vectors: one an input, in order: `ModelInfo.embedding_size` numbers each, as float32 with the low byte first,
            of length 1.
        tokens: tokens of each input.
    """

    vectors: tuple[bytes, ...]
    tokens: tuple[int, ...]


GenerationEvent: TypeAlias = Started | Text | Finished | Failed | Released
Event: TypeAlias = GenerationEvent | Embedded


@dataclass(frozen=True, slots=True)
class Figures:
    """The engine's state and its counters since it started.

    Attributes:
        slots: sequences that can run at once; `free` + `held` == `slots`.
        free: slots nobody holds.
        held: slots leased to a running sequence.
        waiting: sequences in the queue.
        active_tokens: KV cells of running sequences.
        cached_tokens: KV cells kept for their prefix.
        steps: passes through the model.
        step_seconds: seconds the last pass took.
        rows_decoded: tokens computed to draw the next one, in decode passes.
        prompt_tokens: all other tokens computed.
        aborted: passes cut short because every row in them had been cancelled.
        drafted: guesses at tokens that were computed behind them.
        accepted: how many of them were right.
        stored_tokens: those whose cells are saved in host memory, for their prefix.
        saved_tokens: tokens saved there.
        restored_tokens: tokens brought back from there.
        embedding_waiting: inputs of embedding requests that are not embedded yet.
        embeddings: inputs embedded.
        embedding_tokens: tokens computed for embeddings.
    """

    slots: int = 0
    free: int = 0
    held: int = 0
    waiting: int = 0
    active_tokens: int = 0
    cached_tokens: int = 0
    steps: int = 0
    step_seconds: float = 0.0
    rows_decoded: int = 0
    prompt_tokens: int = 0
    aborted: int = 0
    drafted: int = 0
    accepted: int = 0
    stored_tokens: int = 0
    saved_tokens: int = 0
    restored_tokens: int = 0
    embedding_waiting: int = 0
    embeddings: int = 0
    embedding_tokens: int = 0


@dataclass(frozen=True, slots=True)
class SlotInfo:
    """One slot as seen from outside.

    Attributes:
        id: the slot's `seq_id`, from 0.
        state: `idle`, `prefill` or `decode`.
        request_id: of the request that holds it, or None.
        active_tokens: KV cells of the running sequence.
        cached_tokens: KV cells kept for their prefix; 0 while a sequence runs.
    """

    id: int
    state: str
    request_id: str | None
    active_tokens: int
    cached_tokens: int


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """The model an engine has loaded.

    Attributes:
        description: architecture, size and quantisation in llama.cpp's words.
        vocabulary: number of token ids; ids run from 0.
        context: tokens a slot can hold.
        trained_context: tokens the model was trained on.
        slots: sequences that can run at once.
        parameters: number of weights.
        size: bytes of the weights.
        architecture: llama.cpp's name for its kind.
        generates: whether it continues texts; else it only computes embeddings.
        embedding_size: numbers in an embedding.
        infills: whether it has the tokens that `Infill` needs.
        chat_template: the Jinja template in its file, if there is one.
        tool_template: the one that its file has for requests with tools, if there is one.
        bos: the text of its token for a beginning; empty if it has none.
        eos: the text of its token for an end; empty if it has none.
        special_tokens: ids of the tokens that are more than their text, by name: control tokens and markers.
    """

    description: str
    vocabulary: int
    context: int
    trained_context: int
    slots: int
    parameters: int
    size: int
    architecture: str = ""
    generates: bool = True
    embedding_size: int = 0
    infills: bool = False
    chat_template: str | None = None
    tool_template: str | None = None
    bos: str = ""
    eos: str = ""
    special_tokens: dict[str, int] = field(default_factory=dict)
