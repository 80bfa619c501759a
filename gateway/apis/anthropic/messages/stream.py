"""Encoder of a streamed message: Anthropic's typed events."""

from collections.abc import Iterator, Sequence

import orjson

from engine import Finished, Text
from gateway.apis.anthropic.messages.answer import (
    BlockDeltaPart,
    BlockStart,
    ContentBlock,
    MessageEvent,
    Ping,
    StreamEvent,
)
from gateway.apis.anthropic.messages.call import MessageOptions
from gateway.apis.anthropic.messages.content import BlockKind, kind_of
from gateway.apis.anthropic.messages.message import message, new_call_id, stop_of, usage
from gateway.apis.anthropic.signature import sign
from gateway.chat.conversation import ChatPrompt
from gateway.chat.deltas import CallArguments, CallBegan, ContentDelta, Delta, ReasoningDelta
from gateway.middleware.streams.sse import Framing


class MessageEvents:
    """Encodes the events of a message. One content block is open at a time."""

    def __init__(self, model: str, options: MessageOptions, prompt: ChatPrompt) -> None:
        """Begin a stream.

        Args:
            model: the model's name in the message.
            options: options for the answer.
            prompt: the rendered prompt. Its parser reads the text.
        """
        self._model = model
        self._options = options
        self._parser = prompt.parsing.parser()
        self._began = False
        self._open: BlockKind | None = None
        self._index = -1
        self._thinking: list[str] = []
        self._called = False

    def encode(self, prompt_tokens: Sequence[int], events: Sequence[Text | Finished]) -> Iterator[bytes]:
        """Yield the events for those of the engine."""
        if not self._began:
            self._began = True
            yield encoded({"type": "message_start", "message": message(self._model, [], None, usage(prompt_tokens))})
        for event in events:
            ended = isinstance(event, Finished)
            for delta in [*self._parser.feed(event.text), *(self._parser.finish() if ended else ())]:
                yield from map(encoded, self._add(delta))
            if isinstance(event, Finished):
                yield from map(encoded, self._end(prompt_tokens, event))

    def _add(self, delta: Delta) -> Iterator[MessageEvent]:
        kind = kind_of(delta)
        if isinstance(delta, CallBegan) or kind != self._open:
            yield from self._stop()
            yield self._start(kind, delta)
        if (part := self._part(delta)) is not None:
            yield {"type": "content_block_delta", "index": self._index, "delta": part}

    def _start(self, kind: BlockKind, delta: Delta) -> BlockStart:
        self._open = kind
        self._index += 1
        self._called |= kind == "tool_use"
        return {"type": "content_block_start", "index": self._index, "content_block": _empty(delta)}

    def _part(self, delta: Delta) -> BlockDeltaPart | None:
        match delta:
            case ContentDelta(text):
                return {"type": "text_delta", "text": text}
            case CallArguments(_, text):
                return {"type": "input_json_delta", "partial_json": text}
            case ReasoningDelta(text) if not self._options.omits_thinking:
                self._thinking.append(text)
                return {"type": "thinking_delta", "thinking": text}
        return None

    def _stop(self) -> Iterator[MessageEvent]:
        """Yield the end of the open block, with the signature of thinking."""
        if self._open is None:
            return
        if self._open == "thinking":
            signature = sign("".join(self._thinking))
            self._thinking.clear()
            part: BlockDeltaPart = {"type": "signature_delta", "signature": signature}
            yield {"type": "content_block_delta", "index": self._index, "delta": part}
        yield {"type": "content_block_stop", "index": self._index}

    def _end(self, prompt_tokens: Sequence[int], end: Finished) -> Iterator[MessageEvent]:
        yield from self._stop()
        stop = stop_of(end, self._options, called=self._called and not self._parser.cut_calls)
        yield {"type": "message_delta", "delta": stop, "usage": usage(prompt_tokens, end)}
        yield {"type": "message_stop"}


def _empty(delta: Delta) -> ContentBlock:
    """Return the block that a delta begins, without its content."""
    match delta:
        case ReasoningDelta():
            return {"type": "thinking", "thinking": "", "signature": ""}
        case CallBegan(_, name):
            return {"type": "tool_use", "id": new_call_id(), "name": name, "input": {}}
    return {"type": "text", "text": ""}


def encoded(event: StreamEvent) -> bytes:
    """Return an event with its name."""
    return b"event: %b\ndata: %b\n\n" % (event["type"].encode(), orjson.dumps(event))


_ping: Ping = {"type": "ping"}
EVENTS = Framing(ping=encoded(_ping), failure=b"event: error\ndata: %b\n\n")
"""Format of the stream."""
