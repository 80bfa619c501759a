"""A chat answer that streams: OpenAI's chunks."""

from collections.abc import Iterator, Sequence
from typing import Any

import orjson

from engine import Finished, Text, TokenDetail
from gateway.apis.answers.prompt_ids import PromptIds
from gateway.apis.answers.timings import timings
from gateway.apis.openai.chat.logprobs import chat_logprobs
from gateway.apis.openai.chat.message import finish_reason, new_call_id
from gateway.apis.openai.chat.request import ChatBody
from gateway.apis.openai.usage import usage
from gateway.chat.conversation import ChatPrompt
from gateway.chat.deltas import CallArguments, CallBegan, Content, Delta, Reasoning

_ROLE = b'{"role":"assistant","content":""}'
_GOES_ON = b"null"


class ChatChunks:
    """Encodes the events of a stream. What never changes is encoded once.

    Each choice is told its role first and once, and its end last and alone, so that a client may simply join what lies
    between.
    """

    def __init__(self, head: dict[str, Any], body: ChatBody, prompt: ChatPrompt, ids: PromptIds) -> None:
        """Args: `head`, of each chunk; `ids`, the prompt's tokens if they are asked for."""
        self._head = b"data: " + orjson.dumps(head)[:-1]
        self._tail = b',"usage":null}\n\n' if body.include_usage else b"}\n\n"
        self._body = body
        self._prompt_ids = b',"prompt_token_ids":' + orjson.dumps(ids[0]) if ids else b""
        self._choices = [_Choice(index, body, prompt) for index in range(body.n)]
        self._ends: list[Finished] = []

    def encode(self, prompt_tokens: Sequence[int], events: Sequence[Text | Finished]) -> bytes:
        """The chunks of all events, and the usage, if it is wanted, behind the last one of all."""
        parts: list[bytes] = []
        for event in events:
            choice = self._choices[event.choice]
            if not choice.began:
                parts += (self._head, choice.begin(), self._prompt_ids, self._tail)
            for chunk in choice.encode(event):
                parts += (self._head, chunk, self._tail)
            self._ends += [event] if isinstance(event, Finished) else []
        if len(self._ends) == len(self._choices):
            parts[-1:] = self._end(prompt_tokens)
        return b"".join(parts)

    def _end(self, prompt_tokens: Sequence[int]) -> Sequence[bytes]:
        """Ends the last choice's chunk. What the request cost follows in a chunk of its own, if it is wanted."""
        timed = b',"timings":' + orjson.dumps(timings(prompt_tokens, self._ends)) if self._body.timings else b""
        if not self._body.include_usage:
            return timed, self._tail
        spent = orjson.dumps(usage(prompt_tokens, self._ends))
        return self._tail, self._head, b',"choices":[],"usage":', spent, timed, b"}\n\n"


class _Choice:
    """One choice's part of each of its chunks.

    Attributes:
        began: whether its role was told.
    """

    def __init__(self, index: int, body: ChatBody, prompt: ChatPrompt) -> None:
        self.began = False
        self._before = b',"choices":[{"index":%d,"delta":' % index
        self._body = body
        self._parser = prompt.parser()
        self._untold: list[TokenDetail] = []
        self._called = False

    def begin(self) -> bytes:
        """Tells the role."""
        self.began = True
        return self._chunk(_ROLE)

    def encode(self, event: Text | Finished) -> Iterator[bytes]:
        """A chunk for each delta, and one for the end. Tokens of text that the parser holds back wait for the next."""
        self._untold += event.details
        ended = isinstance(event, Finished)
        for delta in [*self._parser.feed(event.text), *(self._parser.finish() if ended else ())]:
            yield self._chunk(orjson.dumps(self._delta(delta)), self._take())
        if isinstance(event, Finished):
            reason = finish_reason(event, called=self._called, deprecated=self._body.deprecated_calls)
            yield self._chunk(
                b"{}", self._take(), b'"%b","stop_reason":%b' % (reason.encode(), orjson.dumps(event.stop))
            )

    def _take(self) -> list[TokenDetail]:
        told, self._untold = self._untold, []
        return told

    def _chunk(self, delta: bytes, details: Sequence[TokenDetail] = (), reason: bytes = _GOES_ON) -> bytes:
        logprobs = orjson.dumps(chat_logprobs(details)) if self._body.logprobs and details else b"null"
        ids = orjson.dumps([detail.id for detail in details]) if self._body.return_token_ids else b""
        return b"".join(
            (
                self._before,
                delta,
                b',"logprobs":',
                logprobs,
                b',"finish_reason":',
                reason,
                b',"token_ids":' if ids else b"",
                ids,
                b"}]",
            )
        )

    def _delta(self, delta: Delta) -> dict[str, Any]:
        match delta:
            case Content(text):
                return {"content": text}
            case Reasoning(text):
                return {"reasoning_content": text}
            case CallBegan(index, name):
                self._called = True
                return self._call(index, {"name": name, "arguments": ""}, id=new_call_id(), type="function")
            case CallArguments(index, text):
                return self._call(index, {"arguments": text})

    def _call(self, index: int, function: dict[str, str], **told_once: str) -> dict[str, Any]:
        if self._body.deprecated_calls:
            return {"function_call": function}
        return {"tool_calls": [{"index": index, **told_once, "function": function}]}
