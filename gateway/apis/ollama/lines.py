"""Encoder of Ollama's answers: lines of JSON, or one object that has all of them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypedDict, TypeVar, cast
from uuid import uuid4

import anyio
import orjson

from engine import Finished, Text, TokenDetail
from gateway.apis.answers.deltas import read_deltas
from gateway.apis.answers.pieces import HOLE, filled
from gateway.apis.answers.token_logprobs import token_logprobs_in_pieces
from gateway.apis.ollama.answer import (
    AnsweredCall,
    AnsweredMessage,
    ChatLine,
    DoneReason,
    Function,
    GenerateLine,
    Line,
    done_reason,
    nanoseconds,
    now,
)
from gateway.chat.conversation import ChatPrompt
from gateway.chat.deltas import CallArguments, CallBegan, ContentDelta, Delta, FormatParser, ReasoningDelta
from gateway.chat.formats.parser import TextParser

LineT = TypeVar("LineT", bound=Line)

_END = b"\n"
"""End of a line."""
_SHORTEST = 1e-6
"""llama.cpp's shortest time of decode steps, in seconds. A single token takes none, and clients divide by the time."""


class Piece(TypedDict, total=False):
    """Part of the message in one line."""

    content: str
    thinking: str
    tool_calls: list[AnsweredCall]


Shape: TypeAlias = Callable[[Line, Piece], LineT]
"""Makes a route's line of the fields that all have, and a piece of the message."""


def chat_line(line: Line, piece: Piece) -> ChatLine:
    """Return a line of a chat."""
    message: AnsweredMessage = {"role": "assistant", "content": piece.get("content", "")}
    if "thinking" in piece:
        message["thinking"] = piece["thinking"]
    if "tool_calls" in piece:
        message["tool_calls"] = piece["tool_calls"]
    return {**line, "message": message}


def generate_line(line: Line, piece: Piece) -> GenerateLine:
    """Return a line of a prompt's answer, which has no calls because it offers no tools."""
    thinking = {"thinking": piece["thinking"]} if "thinking" in piece else {}
    return cast("GenerateLine", {**line, "response": piece.get("content", ""), **thinking})


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms(Generic[LineT]):
    """Fields that all lines of an answer share."""

    model: str
    """Name of the model, as the client wrote it."""
    shape: Shape[LineT]
    """Shape of the route's lines."""
    prompt: ChatPrompt | None
    """Rendered prompt, whose parser reads the text; unset for a text that is not parsed."""
    began: float
    """Time at which the request arrived, by the event loop's clock."""
    loaded: float
    """Time at which its model was loaded."""

    def line(self, piece: Piece, details: Sequence[TokenDetail]) -> Iterator[bytes]:
        """Return the JSON of a line of a stream that goes on, with the log-probabilities of its tokens, in pieces."""
        return self._encoded({"model": self.model, "created_at": now(), "done": False}, piece, details)

    def last(
        self, piece: Piece, details: Sequence[TokenDetail], prompt_tokens: Sequence[int], end: Finished
    ) -> Iterator[bytes]:
        """Return the JSON of the last line of a stream, or of a whole answer, in pieces as `line` does."""
        line: Line = {
            "model": self.model,
            "created_at": now(),
            "done": True,
            "done_reason": done_reason(end),
            "total_duration": nanoseconds(anyio.current_time() - self.began),
            "load_duration": nanoseconds(self.loaded - self.began),
            "prompt_eval_count": sum(prompt_tokens),
            "prompt_eval_duration": nanoseconds(end.prompt_seconds),
            "eval_count": end.tokens,
            "eval_duration": nanoseconds(max(end.decode_seconds, _SHORTEST)),
        }
        return self._encoded(line, piece, details)

    def _encoded(self, line: Line, piece: Piece, details: Sequence[TokenDetail]) -> Iterator[bytes]:
        if not details:
            return filled(self.shape(line, piece))
        return filled(self.shape({**line, "logprobs": HOLE}, piece), token_logprobs_in_pieces(details))


def only_loaded(model: str, shape: Shape[LineT], reason: DoneReason) -> LineT:
    """Return the answer to a request without a prompt."""
    line: Line = {"model": model, "created_at": now(), "done": True, "done_reason": reason}
    return shape(line, {})


class Lines(Generic[LineT]):
    """Encodes the events of a stream as lines of JSON. Tool calls are sent when they are complete."""

    def __init__(self, terms: Terms[LineT]) -> None:
        self._terms = terms
        self._reader = MessageReader(terms.prompt)
        self._unsent: list[TokenDetail] = []
        """Tokens of text that the parser holds back. They belong to the next line."""

    def encode(self, prompt_tokens: Sequence[int], events: Sequence[Text | Finished]) -> Iterator[bytes]:
        """Yield the lines of all events."""
        for event in events:
            self._unsent += event.details
            ended = isinstance(event, Finished)
            for piece in [*self._reader.read(event.text), *(self._reader.finish() if ended else ())]:
                yield from self._terms.line(piece, self._take())
                yield _END
            if isinstance(event, Finished):
                yield from self._terms.last({}, self._take(), prompt_tokens, event)
                yield _END

    def _take(self) -> list[TokenDetail]:
        taken, self._unsent = self._unsent, []
        return taken


class MessageReader:
    """Reads the pieces of a message from a text, in which calls are complete."""

    def __init__(self, prompt: ChatPrompt | None) -> None:
        """Read with the parser of a prompt, or the text as it is without one."""
        self._parser: FormatParser = TextParser() if prompt is None else prompt.parsing.parser()
        self._calls = 0
        self._name: str | None = None
        self._arguments: list[str] = []

    def read(self, text: str) -> Iterator[Piece]:
        """Yield the pieces that a text completes."""
        return self._pieces(self._parser.feed(text))

    def finish(self) -> Iterator[Piece]:
        """Yield the pieces that were held back."""
        yield from self._pieces(self._parser.finish())
        yield from self._call()

    async def whole(self, text: str) -> Piece:
        """Return the message of a whole text. Lets other tasks run while it reads a long one."""
        deltas = await read_deltas(self._parser, text)
        return _joined([*self._pieces(deltas), *self._call()])

    def _pieces(self, deltas: Iterable[Delta]) -> Iterator[Piece]:
        for delta in deltas:
            if isinstance(delta, CallArguments):
                self._arguments.append(delta.text)
                continue
            yield from self._call()
            match delta:
                case ContentDelta(text):
                    yield {"content": text}
                case ReasoningDelta(text):
                    yield {"thinking": text}
                case CallBegan(_, name):
                    self._name = name

    def _call(self) -> Iterator[Piece]:
        """Yield the call that is complete, if there is one. The limit may have cut its arguments: they become text."""
        if self._name is None:
            return
        name, source = self._name, "".join(self._arguments)
        self._name, self._arguments = None, []
        try:
            arguments = orjson.loads(source or "{}")
        except orjson.JSONDecodeError:
            arguments = None
        if isinstance(arguments, dict):
            function: Function = {"index": self._calls, "name": name, "arguments": arguments}
            self._calls += 1
            yield {"tool_calls": [{"id": f"call_{uuid4().hex[:8]}", "function": function}]}
        else:
            yield {"content": f"{name}({source}"}


def _joined(pieces: Iterable[Piece]) -> Piece:
    """Return the pieces of a whole message as one."""
    content, thinking, calls = list[str](), list[str](), list[AnsweredCall]()
    for piece in pieces:
        content.append(piece.get("content", ""))
        thinking.append(piece.get("thinking", ""))
        calls += piece.get("tool_calls", ())
    message: Piece = {"content": "".join(content)}
    if any(thinking):
        message["thinking"] = "".join(thinking)
    if calls:
        message["tool_calls"] = calls
    return message
