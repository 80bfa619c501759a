"""Encoder of a streamed chat completion: OpenAI's chunks."""

from collections.abc import Iterable, Iterator, Sequence

import orjson

from engine import Finished, Text, TokenDetail
from gateway.apis.answers.pieces import HOLE, filled
from gateway.apis.answers.prompt_ids import PromptIds
from gateway.apis.answers.shapes import PromptProgress
from gateway.apis.answers.timings import RunningTimings
from gateway.apis.openai.chat.answer import (
    ChatDelta,
    ChatFinishReason,
    ChatHead,
    ChatPart,
    ChunkHead,
    CustomDelta,
    FunctionDelta,
)
from gateway.apis.openai.chat.call import ChatOptions
from gateway.apis.openai.chat.message import chat_logprobs, finish_reason, new_call_id
from gateway.apis.openai.reports import ChunkFrame
from gateway.chat.conversation import ChatPrompt
from gateway.chat.deltas import CallArguments, CallBegan, ContentDelta, Delta, ReasoningDelta


class ChatChunks:
    """Encodes the events of a stream.

    The first chunk of a choice has its role. The last one has its finish reason and no text, so that clients can join
    the deltas between them. All choices begin first, in their order: OpenAI's client for Python takes the place of a
    choice among the first chunks for its index, and the one for Java takes an answer for complete when each choice that
    it has seen has ended.
    """

    def __init__(self, head: ChatHead, options: ChatOptions, prompt: ChatPrompt, ids: PromptIds) -> None:
        """Begin a stream.

        Args:
            head: fields that are the same in every chunk.
            options: options for the shape of the answer.
            prompt: the rendered prompt. Its parser reads the choices.
            ids: the prompt's token ids if the request asks for them.
        """
        chunk_head: ChunkHead = {"id": head["id"], "object": "chat.completion.chunk", **head}
        self._frame = ChunkFrame(chunk_head, options.report)
        self._shows_progress = options.report.return_progress
        self._prompt_ids = b',"prompt_token_ids":' + orjson.dumps(ids[0]) if ids else b""
        self._choices = [_Choice(index, options, prompt) for index in range(options.n)]
        self._begun = False
        self._ends: list[Finished] = []

    def encode(self, prompt_tokens: Sequence[int], events: Sequence[Text | Finished]) -> Iterator[bytes]:
        """Yield the chunks of all events. With `include_usage`, the usage follows the last choice."""
        if not self._begun:
            yield from self._begin(prompt_tokens)
        for event in events:
            choice = self._choices[event.choice]
            if isinstance(event, Text) and (progress := choice.running.read(event)) is not None:
                yield from self._progress(choice, progress, prompt_tokens)
                continue
            for part in choice.parts(event):
                yield self._frame.head
                yield from part
                yield self._frame.extras(choice.running, event.decode_seconds)
                yield self._end(choice, prompt_tokens)
            if isinstance(event, Finished):
                self._ends.append(event)
                yield self._frame.head
                yield from choice.end(event)
                end, last = self._end(choice, prompt_tokens), len(self._ends) == len(self._choices)
                yield from self._frame.last(end, prompt_tokens, self._ends) if last else (end,)

    def _begin(self, prompt_tokens: Sequence[int]) -> Iterator[bytes]:
        """Yield the first chunks of all choices."""
        for choice in self._choices:
            yield from (self._frame.head, *choice.begin(), self._prompt_ids, self._end(choice, prompt_tokens))
        self._begun = True

    def _progress(self, choice: "_Choice", progress: PromptProgress, prompt_tokens: Sequence[int]) -> Iterable[bytes]:
        if not self._shows_progress:
            return ()
        extras = self._frame.extras(choice.running, 0.0, progress)
        return self._frame.head, *choice.idle(), extras, self._end(choice, prompt_tokens)

    def _end(self, choice: "_Choice", prompt_tokens: Sequence[int]) -> bytes:
        (prompt,) = prompt_tokens
        return self._frame.end(prompt, choice.running)


class _Choice:
    """Encoder of the chunks of one choice."""

    def __init__(self, index: int, options: ChatOptions, prompt: ChatPrompt) -> None:
        self.running = RunningTimings()
        """Times until now."""
        self._index = index
        self._options = options
        self._parser = prompt.parsing.parser()
        self._unsent: list[TokenDetail] = []
        """Tokens of text that the parser holds back. They belong to the next part."""
        self._called = False
        self._in_custom = False

    def begin(self) -> Iterable[bytes]:
        """Return the first part, which has the role."""
        content = None if self._options.report.like_llama_server else ""
        return self._encoded(self._part({"role": "assistant", "content": content}), ())

    def idle(self) -> Iterable[bytes]:
        """Return a part without news."""
        return self._encoded(self._part({}), ())

    def parts(self, event: Text | Finished) -> Iterator[Iterable[bytes]]:
        """Yield a part for each delta."""
        self._unsent += event.details
        self.running.count(event)
        ended = isinstance(event, Finished)
        for delta in [*self._parser.feed(event.text), *(self._parser.finish() if ended else ())]:
            yield self._encoded(self._part(self._delta(delta)), self._take())

    def end(self, event: Finished) -> Iterable[bytes]:
        """Return the last part, which has the finish reason."""
        called = self._called and not self._parser.cut_calls
        reason = finish_reason(event, called=called, deprecated=self._options.deprecated_calls)
        return self._encoded({**self._part({}, reason), "stop_reason": event.stop}, self._take())

    def _take(self) -> list[TokenDetail]:
        taken, self._unsent = self._unsent, []
        return taken

    def _part(self, delta: ChatDelta, reason: ChatFinishReason | None = None) -> ChatPart:
        return {"index": self._index, "delta": delta, "logprobs": None, "finish_reason": reason}

    def _encoded(self, part: ChatPart, details: Sequence[TokenDetail]) -> Iterable[bytes]:
        """Return the JSON of an array of one part, with the details of its tokens, in pieces."""
        if self._options.report.token_ids:
            part["token_ids"] = [detail.id for detail in details]
        if not details or not self._options.logprobs:
            return (orjson.dumps([part]),)
        part["logprobs"] = HOLE
        return filled([part], chat_logprobs(details))

    def _delta(self, delta: Delta) -> ChatDelta:
        match delta:
            case ContentDelta(text):
                return {"content": text}
            case ReasoningDelta(text):
                return {"reasoning_content": text}
            case CallBegan():
                self._called, self._in_custom = True, delta.custom
                return self._call(delta.index, delta.name)
            case CallArguments(index, text) if self._in_custom:
                return {"tool_calls": [{"index": index, "custom": {"input": text}}]}
            case CallArguments(_, text) if self._options.deprecated_calls:
                return {"function_call": {"arguments": text}}
            case CallArguments(index, text):
                return {"tool_calls": [{"index": index, "function": {"arguments": text}}]}

    def _call(self, index: int, name: str) -> ChatDelta:
        """Return the first delta of a call."""
        if self._in_custom:
            custom: CustomDelta = {"name": name, "input": ""}
            return {"tool_calls": [{"index": index, "id": new_call_id(), "type": "custom", "custom": custom}]}
        function: FunctionDelta = {"name": name, "arguments": ""}
        if self._options.deprecated_calls:
            return {"function_call": function}
        return {"tool_calls": [{"index": index, "id": new_call_id(), "type": "function", "function": function}]}
