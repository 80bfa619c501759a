"""The stream of a response: OpenAI's typed events, numbered from 0."""

from collections.abc import Callable, Sequence

import orjson

from engine import Finished, Text
from gateway.apis.openai.responses.output_items import Event
from gateway.apis.openai.responses.response import ResponseAnswer
from gateway.middleware.errors import Problem


class ResponseEvents:
    """Encodes what an answer tells. There is no `[DONE]`: the last event says how the response ended."""

    def __init__(self, answer: ResponseAnswer, keep: Callable[[], None]) -> None:
        """Args: `keep` is called once, when the answer has ended, well or badly, before its last event is sent."""
        self._answer = answer
        self._keep = keep
        self._number = 0

    def encode(self, prompt_tokens: Sequence[int], events: Sequence[Text | Finished]) -> bytes:
        """What there is to tell of the engine's events; before the first, that the response began."""
        told = self._begun() + [event for news in events for event in self._answer.add(prompt_tokens, news)]
        if self._answer.ended:
            self._keep()
        return self._encoded(told)

    def fail(self, problem: Problem) -> bytes:
        """The end of a stream that failed: the failed response, and an error, which OpenAI's clients raise.

        Its fields stand there twice: OpenAI's document has them flat, and its server and its SDK as `error`. Nothing
        follows a response that has ended.
        """
        if self._answer.ended:
            return b""
        told = self._begun() + self._answer.fail(problem)
        self._keep()
        error = {"message": problem.message, "code": problem.code, "param": problem.param}
        return self._encoded([*told, {"type": "error", **error, "error": {"type": problem.type, **error}}])

    def _begun(self) -> list[Event]:
        return [] if self._number else self._answer.begin()

    def _encoded(self, events: Sequence[Event]) -> bytes:
        return b"".join(map(self._event, events))

    def _event(self, event: Event) -> bytes:
        numbered = {**event, "sequence_number": self._number}
        self._number += 1
        return b"event: %b\ndata: %b\n\n" % (event["type"].encode(), orjson.dumps(numbered))
