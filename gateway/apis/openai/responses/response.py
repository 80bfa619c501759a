"""A response during its generation: OpenAI's response object and its events."""

import time
from collections.abc import Sequence
from itertools import count
from typing import Literal

import anyio.lowlevel
import orjson

from engine import Finished, FinishReason, Sampling, Text, TokenDetail
from gateway.apis.answers.shapes import PromptProgress
from gateway.apis.answers.token_logprobs import token_logprobs
from gateway.apis.openai.responses.answer import ResponseHead, ResponseProgress, ResponseUsage
from gateway.apis.openai.responses.call import ResponseOptions
from gateway.apis.openai.responses.encoded import EncodedItem, EncodedResponse
from gateway.apis.openai.responses.events import Lifecycle, LifecycleType, ResponseEvent
from gateway.apis.openai.responses.items import new_id
from gateway.apis.openai.responses.output import ResponseOutput
from gateway.apis.openai.responses.store.stored_response import StoredResponse
from gateway.apis.openai.responses.tokens import TokenReader, TracedDelta, in_slices
from gateway.chat.conversation import ChatPrompt
from gateway.chat.deltas import ContentDelta
from gateway.middleware.errors import INVALID_REQUEST, RATE_LIMIT, Problem

ERROR_CODES: dict[str, Literal["invalid_prompt", "rate_limit_exceeded"]] = {
    INVALID_REQUEST: "invalid_prompt",
    RATE_LIMIT: "rate_limit_exceeded",
}
"""Error codes by problem type. Other problems have OpenAI's only other code, `server_error`."""


class ResponseAnswer:
    """A response from the acceptance of its request until its end."""

    def __init__(self, model: str, options: ResponseOptions, prompt: ChatPrompt, sampling: Sampling) -> None:
        """Create a response without output.

        Args:
            model: the model's name in answers.
            options: fields of the request.
            prompt: the rendered prompt. Its parser reads the output.
            sampling: sampling of the output, with the server's defaults for what the request does not set.
        """
        self.id = new_id("resp")
        """Id of the response."""
        self.numbers = count()
        """Sequence numbers of the events, in the order of their creation and sending."""
        self._model = model
        self._options = options
        self._sampling = sampling
        self._created_at = int(time.time())
        self._progress: ResponseProgress = {
            "status": "queued" if options.background else "in_progress",
            "completed_at": None,
            "error": None,
            "incomplete_details": None,
        }
        self._reader = TokenReader(prompt.parsing.parser())
        self._output = ResponseOutput(
            self.numbers, encodes_reasoning=options.encodes_reasoning, namespaces=options.namespaces
        )

    @property
    def ended(self) -> bool:
        """True if the response has ended, with any status."""
        return self._progress["status"] not in {"queued", "in_progress"}

    @property
    def can_continue(self) -> bool:
        """True if the response has ended so that another one may follow it."""
        return self._progress["status"] in {"completed", "incomplete"}

    @property
    def output(self) -> tuple[EncodedItem, ...]:
        """Items of the output so far."""
        return self._output.items()

    def content(self) -> EncodedResponse:
        """Return the response in its current state. Unknown values are null or absent, as in OpenAI's answers."""
        head: ResponseHead = {
            "id": self.id,
            "object": "response",
            "created_at": self._created_at,
            "model": self._model,
            "temperature": self._sampling.temperature,
            "top_p": self._sampling.top_p,
            **self._progress,
        }
        return EncodedResponse(orjson.dumps(head), self.output, self._options.echo)

    def stored(self, inputs: Sequence[EncodedItem]) -> StoredResponse:
        """Return the response in its current state for the store, with the items of its request."""
        return StoredResponse(
            id=self.id,
            content=self.content(),
            inputs=tuple(inputs),
            previous_id=self._options.previous_id,
            can_continue=self.can_continue,
            background=self._options.background,
        )

    def start(self) -> None:
        """Set the status to `in_progress`: the request has left the queue."""
        self._progress["status"] = "in_progress"

    def begin(self) -> list[ResponseEvent]:
        """Return the first events of a stream."""
        return [self._lifecycle("response.created"), self._lifecycle("response.in_progress")]

    def read(self, progress: PromptProgress) -> ResponseEvent:
        """Return the event with the progress of the prompt."""
        return {**self._lifecycle("response.in_progress"), "prompt_progress": progress}

    def add(self, prompt_tokens: Sequence[int], event: Text | Finished) -> list[ResponseEvent]:
        """Add an event of the only choice. `prompt_tokens` are as in `GenerationResult`."""
        written = self._read(event.text, event.details)
        return written if isinstance(event, Text) else written + self._end(prompt_tokens, event)

    async def add_whole(self, prompt_tokens: Sequence[int], end: Finished) -> None:
        """Add the whole choice of a request without streaming. Other tasks run while a long one is read."""
        for text, tokens in in_slices(end.text, end.details):
            self._read(text, tokens)
            await anyio.lowlevel.checkpoint()
        self._end(prompt_tokens, end)

    def fail(self, problem: Problem) -> list[ResponseEvent]:
        """End the response with an error. It keeps its output so far."""
        self._progress["status"] = "failed"
        self._progress["completed_at"] = self._progress["incomplete_details"] = None
        self._progress["error"] = {
            "code": ERROR_CODES.get(problem.type, "server_error"),
            "message": problem.message,
        }
        return [self._lifecycle("response.failed")]

    def last(self) -> ResponseEvent:
        """Return the last event of a response that has ended as it should."""
        completed = self._progress["status"] == "completed"
        return self._lifecycle("response.completed" if completed else "response.incomplete")

    def cancel(self) -> None:
        """End the response as cancelled."""
        self._progress["status"] = "cancelled"

    def _read(self, text: str, tokens: Sequence[TokenDetail]) -> list[ResponseEvent]:
        return self._written(self._reader.feed(text, tokens))

    def _end(self, prompt_tokens: Sequence[int], end: Finished) -> list[ResponseEvent]:
        return self._written(self._reader.finish()) + self._finish(sum(prompt_tokens), end)

    def _written(self, found: Sequence[TracedDelta]) -> list[ResponseEvent]:
        events: list[ResponseEvent] = []
        for traced in found:
            shown = self._options.logprobs and isinstance(traced.delta, ContentDelta)
            logprobs = token_logprobs(traced.tokens) if shown else ()
            events += self._output.add(traced.delta, logprobs, cut_calls=self._reader.cut_calls)
        return events

    def _finish(self, input_tokens: int, end: Finished) -> list[ResponseEvent]:
        self._progress["usage"] = self._usage(input_tokens, end)
        if end.reason is FinishReason.LENGTH:
            self._progress["status"] = "incomplete"
            self._progress["incomplete_details"] = {"reason": "max_output_tokens"}
            return [*self._output.close("incomplete"), self.last()]
        self._progress["status"] = "completed"
        self._progress["completed_at"] = int(time.time())
        return [*self._output.close("completed", cut_calls=self._reader.cut_calls), self.last()]

    def _usage(self, input_tokens: int, end: Finished) -> ResponseUsage:
        return {
            "input_tokens": input_tokens,
            "input_tokens_details": {"cached_tokens": end.cached, "cache_write_tokens": 0},
            "output_tokens": end.tokens,
            "output_tokens_details": {"reasoning_tokens": end.reasoning},
            "total_tokens": input_tokens + end.tokens,
        }

    def _lifecycle(self, kind: LifecycleType) -> Lifecycle:
        return {"type": kind, "sequence_number": next(self.numbers), "response": self.content().fragment()}
