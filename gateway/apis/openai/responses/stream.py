"""The stream of a response: OpenAI's typed events, numbered from 0."""

from collections.abc import Callable, Iterable, Sequence

import orjson

from engine import Finished, Text
from gateway.apis.openai.responses.events import ErrorEvent, ResponseEvent
from gateway.apis.openai.responses.response import ResponseAnswer
from gateway.middleware.errors import Problem


class ResponseEvents:
    """Encodes the events of a response. There is no `[DONE]`: the last event says how the response ended."""

    def __init__(self, answer: ResponseAnswer, keep: Callable[[], None]) -> None:
        """Args: `keep` is called once, when the answer has ended, well or badly, before its last event is sent."""
        self._answer = answer
        self._keep = keep
        self._began = False

    def encode(self, prompt_tokens: Sequence[int], events: Sequence[Text | Finished]) -> bytes:
        """Return the events that follow from the engine's; before the first, those of the beginning."""
        sent = self._begin()
        for event in events:
            sent += self._answer.add(prompt_tokens, event)
        if self._answer.ended:
            self._keep()
        return _encoded(sent)

    def fail(self, problem: Problem) -> bytes:
        """Return the end of a stream that failed: the failed response, and an error, which OpenAI's clients raise.

        Nothing follows a response that has ended.
        """
        if self._answer.ended:
            return b""
        sent = self._begin() + self._answer.fail(problem)
        self._keep()
        return _encoded([*sent, _error(next(self._answer.numbers), problem)])

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


def _encoded(events: Iterable[ResponseEvent]) -> bytes:
    return b"".join(b"event: %b\ndata: %b\n\n" % (event["type"].encode(), orjson.dumps(event)) for event in events)
