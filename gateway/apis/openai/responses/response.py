"""A response during its generation: OpenAI's response object and its events."""

import time
from collections.abc import Sequence
from itertools import count
from typing import Literal

from engine import Finished, FinishReason, Text
from gateway.apis.openai.chat.logprobs import token_logprobs
from gateway.apis.openai.responses.answer import Response, ResponseProgress, ResponseUsage
from gateway.apis.openai.responses.events import LifecycleType, ResponseEvent
from gateway.apis.openai.responses.items import new_id
from gateway.apis.openai.responses.output import ResponseOutput
from gateway.apis.openai.responses.request import ResponseBody
from gateway.apis.openai.responses.tokens import TokenReader, TracedDelta
from gateway.chat.conversation import ChatPrompt
from gateway.chat.deltas import ContentDelta, ReasoningDelta
from gateway.middleware.errors import INVALID_REQUEST, RATE_LIMIT, Problem

ERROR_CODES: dict[str, Literal["invalid_prompt", "rate_limit_exceeded"]] = {
    INVALID_REQUEST: "invalid_prompt",
    RATE_LIMIT: "rate_limit_exceeded",
}
"""Error codes by problem type. Other problems have OpenAI's only other code, `server_error`."""


class ResponseAnswer:
    """A response from the acceptance of its request until its end."""

    def __init__(self, model: str, body: ResponseBody, prompt: ChatPrompt) -> None:
        """Create a response without output.

        Args:
            model: the model's name in answers.
            body: the request.
            prompt: the rendered prompt. Its parser reads the output.
        """
        self.id = new_id("resp")
        """Id of the response."""
        self.numbers = count()
        """Sequence numbers of the events, in the order of their creation and sending."""
        self._model = model
        self._created_at = int(time.time())
        self._progress: ResponseProgress = {
            "status": "queued" if body.background else "in_progress",
            "completed_at": None,
            "error": None,
            "incomplete_details": None,
        }
        self._echo = body.echo()
        self._logprobs = body.logprobs
        self._caches = body.cache_prompt
        self._reader = TokenReader(prompt.parsing.parser())
        self._output = ResponseOutput(self.numbers)
        self._reasoning_tokens = 0

    @property
    def ended(self) -> bool:
        """True if the response has ended, with any status."""
        return self._progress["status"] not in {"queued", "in_progress"}

    def content(self) -> Response:
        """Return the response in its current state. Unknown values are null or absent, as in OpenAI's answers."""
        return {
            "id": self.id,
            "object": "response",
            "created_at": self._created_at,
            "model": self._model,
            **self._progress,
            "output": self._output.items(),
            **self._echo,
        }

    def start(self) -> None:
        """Set the status to `in_progress`: the request has left the queue."""
        self._progress["status"] = "in_progress"

    def begin(self) -> list[ResponseEvent]:
        """Return the first events of a stream."""
        return [self._lifecycle("response.created"), self._lifecycle("response.in_progress")]

    def add(self, prompt_tokens: Sequence[int], event: Text | Finished) -> list[ResponseEvent]:
        """Add an event of the only choice. `prompt_tokens` are as in `GenerationResult`."""
        found = self._reader.feed(event.text, event.details)
        if isinstance(event, Text):
            return self._written(found)
        return self._written([*found, *self._reader.finish()]) + self._finish(sum(prompt_tokens), event)

    def fail(self, problem: Problem) -> list[ResponseEvent]:
        """End the response with an error. It keeps its output so far."""
        self._progress["status"] = "failed"
        self._progress["error"] = {
            "code": ERROR_CODES.get(problem.type, "server_error"),
            "message": problem.message,
        }
        return [self._lifecycle("response.failed")]

    def cancel(self) -> None:
        """End the response as cancelled."""
        self._progress["status"] = "cancelled"

    def _written(self, found: Sequence[TracedDelta]) -> list[ResponseEvent]:
        events: list[ResponseEvent] = []
        for traced in found:
            shown = self._logprobs and isinstance(traced.delta, ContentDelta)
            events += self._output.add(traced.delta, token_logprobs(traced.tokens) if shown else ())
            self._reasoning_tokens += len(traced.tokens) * isinstance(traced.delta, ReasoningDelta)
        return events

    def _finish(self, input_tokens: int, end: Finished) -> list[ResponseEvent]:
        self._progress["usage"] = self._usage(input_tokens, end)
        if end.reason is FinishReason.LENGTH:
            self._progress["status"] = "incomplete"
            self._progress["incomplete_details"] = {"reason": "max_output_tokens"}
            return [*self._output.close("incomplete"), self._lifecycle("response.incomplete")]
        self._progress["status"] = "completed"
        self._progress["completed_at"] = int(time.time())
        return [*self._output.close("completed"), self._lifecycle("response.completed")]

    def _usage(self, input_tokens: int, end: Finished) -> ResponseUsage:
        written = input_tokens - end.cached if self._caches else 0
        return {
            "input_tokens": input_tokens,
            "input_tokens_details": {"cached_tokens": end.cached, "cache_write_tokens": written},
            "output_tokens": end.tokens,
            "output_tokens_details": {"reasoning_tokens": self._reasoning_tokens},
            "total_tokens": input_tokens + end.tokens,
        }

    def _lifecycle(self, kind: LifecycleType) -> ResponseEvent:
        return {"type": kind, "sequence_number": next(self.numbers), "response": self.content()}
