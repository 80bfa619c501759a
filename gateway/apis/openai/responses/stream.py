"""Encoder of a streamed response: OpenAI's typed events, numbered from 0."""

from collections.abc import Callable, Iterable, Sequence

import orjson

from engine import Finished, Text
from gateway.apis.openai.responses.events import ErrorEvent, ResponseEvent
from gateway.apis.openai.responses.response import ResponseAnswer
from gateway.middleware.errors import Problem


class ResponseEvents:
    """Encodes the events of a response. The last event has the final status; `[DONE]` does not follow."""

    def __init__(self, answer: ResponseAnswer, on_end: Callable[[], None]) -> None:
        """Begin a stream.

        Args:
            answer: the response to stream.
            on_end: called once, when the response has ended in success or failure, before its last event is sent.
        """
        self._answer = answer
        self._on_end = on_end
        self._began = False

    def encode(self, prompt_tokens: Sequence[int], events: Sequence[Text | Finished]) -> Iterable[bytes]:
        """Return the events for those of the engine. The first call also returns the stream's first events."""
        sent = self._begin()
        for event in events:
            sent += self._answer.add(prompt_tokens, event)
        if self._answer.ended:
            self._on_end()
        return map(_encoded, sent)

    def fail(self, problem: Problem) -> bytes:
        """Return the end of a failed stream: the failed response, and an error, which OpenAI's clients raise.

        Returns no bytes if the response has ended already.
        """
        if self._answer.ended:
            return b""
        sent = self._begin() + self._answer.fail(problem)
        self._on_end()
        return b"".join(map(_encoded, [*sent, _error(next(self._answer.numbers), problem)]))

    def _begin(self) -> list[ResponseEvent]:
        if self._began:
            return []
        self._began = True
        return self._answer.begin()


def _error(number: int, problem: Problem) -> ErrorEvent:
    return {
        "type": "error",
        "sequence_number": number,
        "message": problem.message,
        "code": problem.code,
        "param": problem.param,
        "error": {
            "type": problem.type,
            "message": problem.message,
            "code": problem.code,
            "param": problem.param,
        },
    }


def _encoded(event: ResponseEvent) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (event["type"].encode(), orjson.dumps(event))
