"""Encoder of a streamed response: OpenAI's typed events, numbered from 0."""

from collections.abc import Iterable, Sequence

import orjson

from engine import Finished, Text
from gateway.apis.answers.timings import RunningTimings
from gateway.apis.openai.responses.call import ResponseOptions
from gateway.apis.openai.responses.events import ErrorEvent, ResponseEvent
from gateway.apis.openai.responses.response import ResponseAnswer
from gateway.middleware.errors import Problem

_BEGINNING = {"response.created", "response.in_progress"}
"""Types of the events before the output."""


class ResponseEvents:
    """Encodes the events of a response. The last event has the final status; `[DONE]` does not follow."""

    def __init__(self, answer: ResponseAnswer, options: ResponseOptions) -> None:
        """Begin a stream.

        Args:
            answer: the response to stream.
            options: fields of the request.
        """
        self.stored = False
        """True once the ended response is stored. A later failure is none of the response."""
        self.complete = False
        """True once its last events were sent, too."""
        self._answer = answer
        self._options = options
        self._running = RunningTimings()
        self._began = False
        self._latest: Sequence[ResponseEvent] = ()

    def encode(self, prompt_tokens: Sequence[int], events: Sequence[Text | Finished]) -> Iterable[bytes]:
        """Return the events for those of the engine. The first call also returns the stream's first events."""
        sent = self._begin()
        for event in events:
            sent += self._timed(self._events(prompt_tokens, event), event.decode_seconds)
        self._latest = sent
        return map(_encoded, sent)

    def fail(self, problem: Problem) -> bytes:
        """Return the end of a failed stream: the failed response, and an error, which OpenAI's clients raise.

        One that has ended and could not be stored has failed: its last events were not sent, and these take their
        numbers, behind those of the beginning if they are among them. One that is stored has not failed, and its last
        event comes, if it was not sent before.
        """
        if self.complete:
            return b""
        if self.stored:
            return _encoded(self._answer.last())
        unsent = self._latest if self._answer.ended else ()
        begun = self._begin() or [event for event in unsent if event["type"] in _BEGINNING]
        sent = [*begun, *self._answer.fail(problem), _error(next(self._answer.numbers), problem)]
        if unsent:
            for number, event in enumerate(sent, start=unsent[0]["sequence_number"]):
                event["sequence_number"] = number
        return b"".join(map(_encoded, sent))

    def _events(self, prompt_tokens: Sequence[int], event: Text | Finished) -> list[ResponseEvent]:
        if isinstance(event, Text) and (progress := self._running.read(event)) is not None:
            return [self._answer.read(progress)] if self._options.return_progress else []
        self._running.add(len(event.details))
        return self._answer.add(prompt_tokens, event)

    def _timed(self, events: list[ResponseEvent], decode_seconds: float) -> list[ResponseEvent]:
        if events and self._options.timings_per_token:
            times = self._running.timings(decode_seconds)
            for event in events:
                event["timings"] = times
        return events

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
    return b"".join((b"event: ", event["type"].encode(), b"\ndata: ", orjson.dumps(event), b"\n\n"))
