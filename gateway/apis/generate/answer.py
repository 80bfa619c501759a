"""Answers of `/generate`: an envelope with a `success` flag."""

from collections.abc import Iterator, Sequence
from typing import Literal, NotRequired
from uuid import uuid4

import anyio
import orjson

from engine import Finished, FinishReason, Text, TokenDetail
from gateway.apis.answers.legacy_logprobs import LegacyLogprobsEncoder
from gateway.apis.answers.pieces import HOLE, filled
from gateway.apis.answers.prompt_ids import PromptIds
from gateway.apis.answers.shapes import Count, Error, JsonObject, LegacyLogprobs, Time, Timings
from gateway.apis.answers.timings import timings
from gateway.apis.generate.call import GenerateOptions
from gateway.middleware.errors import Problem, error_object


class Generated(JsonObject):
    """A generated text, its token count and its times in seconds."""

    id: str
    text: str
    tokens: Count
    finish_reason: FinishReason
    response_time: Time
    tokens_per_second: Time
    logprobs: NotRequired[LegacyLogprobs]
    token_ids: NotRequired[list[Count]]
    prompt_token_ids: NotRequired[list[Count] | None]
    timings: NotRequired[Timings]


class Success(JsonObject):
    """A successful answer of `/generate`."""

    success: Literal[True]
    data: Generated


class Failure(JsonObject):
    """A failed answer of `/generate`."""

    success: Literal[False]
    error: Error


class GeneratedText(JsonObject):
    """The next piece of the text in a stream."""

    text: str


def encode_error(problem: Problem) -> bytes:
    """Return `{"success": false, "error": {...}}`."""
    return orjson.dumps({"success": False, "error": error_object(problem)})


class Envelope:
    """Encoder of one answer. Its time starts when it is created."""

    def __init__(self, options: GenerateOptions, ids: PromptIds) -> None:
        """Create the envelope and start its time.

        Args:
            options: options for the shape of the answer.
            ids: the prompt's token ids if the request asks for them.
        """
        self._id = f"gen-{uuid4().hex}"
        self._began = anyio.current_time()
        self._options = options
        self._ids = ids
        self._texts: list[str] = []
        self._details: list[TokenDetail] = []

    def encode(self, prompt_tokens: Sequence[int], events: Sequence[Text | Finished]) -> Iterator[bytes]:
        """Yield an SSE event for each piece of text, and the whole answer after the last piece."""
        for event in events:
            if event.text:
                text: GeneratedText = {"text": event.text}
                yield b"data: %b\n\n" % orjson.dumps(text)
            if isinstance(event, Finished):
                yield b"data: "
                yield from self.success(prompt_tokens, event)
                yield b"\n\n"
            else:
                self._texts.append(event.text)
                self._details += event.details

    def success(self, prompt_tokens: Sequence[int], end: Finished) -> Iterator[bytes]:
        """Return the JSON of the whole answer after its last event, in pieces. Times are in seconds."""
        seconds = anyio.current_time() - self._began
        data: Generated = {
            "id": self._id,
            "text": "".join([*self._texts, end.text]),
            "tokens": end.tokens,
            "finish_reason": end.reason,
            "response_time": round(seconds, 6),
            "tokens_per_second": round(end.tokens / seconds, 3) if seconds > 0 else 0.0,
        }
        details = [*self._details, *end.details]
        self._report(data, prompt_tokens, end, details)
        whole: Success = {"success": True, "data": data}
        return filled(whole, *((LegacyLogprobsEncoder().encode(details),) if self._options.logprobs else ()))

    def _report(
        self, data: Generated, prompt_tokens: Sequence[int], end: Finished, details: Sequence[TokenDetail]
    ) -> None:
        """Add the fields that the request asks for."""
        if self._options.logprobs:
            data["logprobs"] = HOLE
        if self._options.token_ids:
            (data["prompt_token_ids"],) = self._ids
            data["token_ids"] = [detail.id for detail in details]
        if self._options.timings:
            data["timings"] = timings(prompt_tokens, [end])
