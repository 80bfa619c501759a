"""The frames between the gateway's process and the engine's. Nothing else knows their format.

A frame is four bytes of length, most significant first, then a JSON array: the message's name and its fields.
Both ends come from one installation, so a frame that does not fit is a defect and raises.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import orjson

from engine.config import EngineConfig
from engine.events import Event, Figures, ModelInfo, SlotInfo, TokenDetail
from engine.protocol.packing import (
    check_finite,
    pack_details,
    pack_event,
    read_details,
    read_embedding,
    read_event,
    read_generation,
)
from engine.request import EmbeddingRequest, GenerationRequest

_HEADER = 4
MAX_FRAME = 256 * 1024 * 1024
"""Bytes. A longer frame means that the two ends have lost step."""


@dataclass(frozen=True, slots=True)
class Configure:
    """To the engine, first: what to load."""

    config: EngineConfig


@dataclass(frozen=True, slots=True)
class Generate:
    """To the engine: a request. `key` names it from here on and is never used twice."""

    key: int
    request: GenerationRequest


@dataclass(frozen=True, slots=True)
class Embed:
    """To the engine: texts to turn into vectors. `key` is as in `Generate`."""

    key: int
    request: EmbeddingRequest


@dataclass(frozen=True, slots=True)
class Cancel:
    """To the engine: nobody waits for this request any more. Answered by `Released`, always and once."""

    key: int


@dataclass(frozen=True, slots=True)
class Inspect:
    """To the engine: tell me of every slot. Answered by `Inspected` with the same ticket, a long pass or not."""

    ticket: int


@dataclass(frozen=True, slots=True)
class Tokenize:
    """To the engine: which tokens are these texts? Answered by `Tokenized` or `Declined` with the same ticket.

    `special`: whether the names of control tokens stand for these; `begin`: whether the model's own beginning is put
    before each text.
    """

    ticket: int
    texts: tuple[str, ...]
    special: bool
    begin: bool


@dataclass(frozen=True, slots=True)
class Detokenize:
    """To the engine: which text is this? Answered by `Detokenized` or `Declined` with the same ticket.

    `special`: whether control tokens appear by their names.
    """

    ticket: int
    tokens: tuple[int, ...]
    special: bool


@dataclass(frozen=True, slots=True)
class Withdraw:
    """To the engine: nobody waits for the answer to this ticket any more. It may stay out."""

    ticket: int


@dataclass(frozen=True, slots=True)
class Loading:
    """From the engine: the share of the model that is loaded, 0 to 1."""

    progress: float


@dataclass(frozen=True, slots=True)
class Loaded:
    """From the engine: the model runs; requests are welcome."""

    model: ModelInfo


@dataclass(frozen=True, slots=True)
class LoadFailed:
    """From the engine: the model cannot be loaded as configured. The process exits."""

    message: str


@dataclass(frozen=True, slots=True)
class Accepted:
    """From the engine: the request is well-formed, fits, and waits for its turn.

    `prompt_tokens` counts the tokens of each prompt or input, in order.
    """

    key: int
    prompt_tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Refused:
    """From the engine: the request ends here. `fault` is the name of a class in `engine.errors`."""

    key: int
    fault: str
    message: str
    code: str | None
    param: str | None


@dataclass(frozen=True, slots=True)
class Step:
    """From the engine: all news of one step, for every request at once."""

    events: tuple[tuple[int, Event], ...]
    figures: Figures


@dataclass(frozen=True, slots=True)
class Inspected:
    """From the engine: every slot, and the figures of the same moment."""

    ticket: int
    slots: tuple[SlotInfo, ...]
    figures: Figures


@dataclass(frozen=True, slots=True)
class Tokenized:
    """From the engine: the tokens of each text."""

    ticket: int
    texts: tuple[tuple[TokenDetail, ...], ...]


@dataclass(frozen=True, slots=True)
class Detokenized:
    """From the engine: the bytes that the tokens stand for."""

    ticket: int
    text: bytes


@dataclass(frozen=True, slots=True)
class Declined:
    """From the engine: the question has no answer. The fields are as in `Refused`."""

    ticket: int
    fault: str
    message: str
    code: str | None
    param: str | None


Submission: TypeAlias = Generate | Embed
Question: TypeAlias = Inspect | Tokenize | Detokenize
Answer: TypeAlias = Inspected | Tokenized | Detokenized
ToEngine: TypeAlias = Configure | Submission | Cancel | Question | Withdraw
FromEngine: TypeAlias = Loading | Loaded | LoadFailed | Accepted | Refused | Step | Answer | Declined
Message: TypeAlias = ToEngine | FromEngine


def encode(message: Message) -> bytes:
    """The frame of a message.

    Raises `ValueError` for what a frame cannot carry: a lone surrogate, an integer of more than 64 bits, a number
    that is not finite among a request's, more than `MAX_FRAME` bytes.
    """
    try:
        packed = orjson.dumps([type(message).__name__, _body(message)])
    except TypeError as error:
        raise ValueError(str(error)) from error
    if len(packed) > MAX_FRAME:
        raise ValueError(f"a frame of {len(packed)} bytes")
    return len(packed).to_bytes(_HEADER) + packed


def _body(message: Message) -> object:
    """A message's fields as orjson can write them."""
    match message:
        case Step(events, figures):
            return [[pack_event(key, event) for key, event in events], figures]
        case Tokenized(ticket, texts):
            return [ticket, list(map(pack_details, texts))]
        case Detokenized(ticket, text):
            return [ticket, text.decode("latin-1")]
        case Generate(_, request):
            check_finite(request.sampling)
    return message


class Decoder:
    """Bytes as they come from a pipe, to messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Message]:
        """The messages that `data` completes. Raises `ValueError` where the bytes are no frame; no more can follow."""
        self._buffer += data
        messages = []
        start = 0
        while len(self._buffer) - start >= _HEADER:
            size = int.from_bytes(self._buffer[start : start + _HEADER])
            if size > MAX_FRAME:
                raise ValueError(f"a frame of {size} bytes")
            end = start + _HEADER + size
            if len(self._buffer) < end:
                break
            messages.append(_read(memoryview(self._buffer)[start + _HEADER : end]))
            start = end
        del self._buffer[:start]
        return messages


def _read(packed: memoryview) -> Message:
    try:
        name, body = orjson.loads(packed)
        return _READERS[name](body)
    except (LookupError, TypeError, ValueError) as error:
        raise ValueError(f"no message: {bytes(packed[:80])!r}") from error


def _read_inspected(body: dict[str, Any]) -> Inspected:
    slots = tuple(SlotInfo(**slot) for slot in body["slots"])
    return Inspected(body["ticket"], slots, Figures(**body["figures"]))


_READERS: dict[str, Callable[[Any], Message]] = {
    "Configure": lambda body: Configure(EngineConfig(**body["config"])),
    "Generate": lambda body: Generate(body["key"], read_generation(body["request"])),
    "Embed": lambda body: Embed(body["key"], read_embedding(body["request"])),
    "Cancel": lambda body: Cancel(**body),
    "Inspect": lambda body: Inspect(**body),
    "Tokenize": lambda body: Tokenize(body["ticket"], tuple(body["texts"]), body["special"], body["begin"]),
    "Detokenize": lambda body: Detokenize(body["ticket"], tuple(body["tokens"]), body["special"]),
    "Withdraw": lambda body: Withdraw(**body),
    "Loading": lambda body: Loading(**body),
    "Loaded": lambda body: Loaded(ModelInfo(**body["model"])),
    "LoadFailed": lambda body: LoadFailed(**body),
    "Accepted": lambda body: Accepted(body["key"], tuple(body["prompt_tokens"])),
    "Refused": lambda body: Refused(**body),
    "Step": lambda body: Step(tuple(read_event(event) for event in body[0]), Figures(**body[1])),
    "Inspected": _read_inspected,
    "Tokenized": lambda body: Tokenized(body[0], tuple(map(read_details, body[1]))),
    "Detokenized": lambda body: Detokenized(body[0], body[1].encode("latin-1")),
    "Declined": lambda body: Declined(**body),
}
