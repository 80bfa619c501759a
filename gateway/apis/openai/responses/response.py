"""One response as it comes to be: the object that OpenAI describes, and the events that tell of it."""

import time
from collections.abc import Sequence
from typing import Any

from engine import Finished, FinishReason, Text
from gateway.apis.openai.chat.logprobs import chat_logprobs
from gateway.apis.openai.responses.items import new_id
from gateway.apis.openai.responses.output import Output
from gateway.apis.openai.responses.output_items import Event
from gateway.apis.openai.responses.request import ResponseBody
from gateway.apis.openai.responses.tokens import Carried, TokenReader
from gateway.chat.conversation import ChatPrompt
from gateway.chat.deltas import Content, Reasoning
from gateway.middleware.errors import INVALID_REQUEST, RATE_LIMIT, Problem

ERROR_CODES = {INVALID_REQUEST: "invalid_prompt", RATE_LIMIT: "rate_limit_exceeded"}
"""By the type of a problem. OpenAI allows no others but `server_error`."""


class ResponseAnswer:
    """From the acceptance of a request to its end.

    Attributes:
        id: the response's.
        status: by OpenAI's names.
    """

    def __init__(self, model: str, body: ResponseBody, prompt: ChatPrompt) -> None:
        """Args: `model`, the name that clients are told."""
        self.id = new_id("resp")
        self.status = "queued" if body.background else "in_progress"
        self._head = {"id": self.id, "object": "response", "created_at": int(time.time()), "model": model}
        self._asked = body.told()
        self._logprobs = body.logprobs
        self._caches = body.cache_prompt
        self._reader = TokenReader(prompt.parser())
        self._output = Output()
        self._reasoning_tokens = 0
        self._end: dict[str, Any] = {}

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        return self.status not in {"queued", "in_progress"}

    def content(self) -> dict[str, Any]:
        """The response as it is now. What is not known yet is null or absent, as OpenAI has it."""
        return {
            **self._head,
            "status": self.status,
            "completed_at": None,
            "error": None,
            "incomplete_details": None,
            **self._end,
            "output": self._output.items(),
            **self._asked,
        }

    def start(self) -> None:
        """It left the queue."""
        self.status = "in_progress"

    def begin(self) -> list[Event]:
        """The first events of a stream."""
        return [self._lifecycle("created"), self._lifecycle("in_progress")]

    def add(self, prompt_tokens: Sequence[int], event: Text | Finished) -> list[Event]:
        """Take what the engine tells of the one choice. `prompt_tokens` are as in `Answer`."""
        found = self._reader.feed(event.text, event.details)
        if isinstance(event, Text):
            return self._told_of(found)
        return self._told_of([*found, *self._reader.finish()]) + self._finish(sum(prompt_tokens), event)

    def fail(self, problem: Problem) -> list[Event]:
        """It ended badly. What was written until then stays in its output."""
        error = {"code": ERROR_CODES.get(problem.type, "server_error"), "message": problem.message}
        self.status, self._end = "failed", {"error": error}
        return [self._lifecycle("failed")]

    def cancel(self) -> None:
        """Its client wants no more of it."""
        self.status = "cancelled"

    def _told_of(self, found: Sequence[Carried]) -> list[Event]:
        events: list[Event] = []
        for carried in found:
            told = self._logprobs and isinstance(carried.delta, Content)
            events += self._output.add(carried.delta, chat_logprobs(carried.tokens)["content"] if told else ())
            self._reasoning_tokens += len(carried.tokens) * isinstance(carried.delta, Reasoning)
        return events

    def _finish(self, input_tokens: int, end: Finished) -> list[Event]:
        cut = end.reason is FinishReason.LENGTH
        self.status = "incomplete" if cut else "completed"
        events = self._output.close(self.status)
        why = {"incomplete_details": {"reason": "max_output_tokens"}} if cut else {"completed_at": int(time.time())}
        self._end = {**why, "usage": self._usage(input_tokens, end)}
        return [*events, self._lifecycle(self.status)]

    def _usage(self, input_tokens: int, end: Finished) -> dict[str, Any]:
        written = input_tokens - end.cached if self._caches else 0
        return {
            "input_tokens": input_tokens,
            "input_tokens_details": {"cached_tokens": end.cached, "cache_write_tokens": written},
            "output_tokens": end.tokens,
            "output_tokens_details": {"reasoning_tokens": self._reasoning_tokens},
            "total_tokens": input_tokens + end.tokens,
        }

    def _lifecycle(self, name: str) -> Event:
        return {"type": f"response.{name}", "response": self.content()}
