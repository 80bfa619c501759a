"""`POST /generate`, the predecessor's route: one prompt, one answer in an envelope that says whether it went well."""

from collections.abc import Sequence
from typing import Annotated, Any
from uuid import uuid4

import anyio
import orjson
from pydantic import BeforeValidator, Field

from engine import Finished, GenerationRequest, Text, TokenDetail
from gateway.apis.answers.legacy_logprobs import LegacyLogprobs
from gateway.apis.answers.prompt_ids import PromptIds, prompt_ids
from gateway.apis.answers.reply import JsonReply
from gateway.apis.answers.timings import timings
from gateway.apis.endpoint import Call
from gateway.apis.fields.constraints import GrammarFields
from gateway.apis.fields.prompts import Prompt, PromptForm, read_prompts
from gateway.apis.fields.sampling import MAX_INT, ReportFields, SamplingFields
from gateway.apis.openai.completions.answer import Success
from gateway.apis.openai.completions.request import MAX_LOGPROBS
from gateway.middleware.sse import EventStream
from gateway.serving.models import Models


def _one_prompt(value: object) -> Prompt:
    prompts = read_prompts(value)
    if len(prompts) != 1:
        raise ValueError("should be one prompt")
    return prompts[0]


class GenerateBody(SamplingFields, GrammarFields, ReportFields):
    """The body of a request."""

    prompt: Annotated[
        Prompt,
        BeforeValidator(
            _one_prompt,
            json_schema_input_type=PromptForm | Annotated[list[PromptForm], Field(min_length=1, max_length=1)],
        ),
    ]
    max_tokens: int = Field(16, ge=0, le=MAX_INT)
    stream: bool = False
    logprobs: int | None = Field(None, ge=0, le=MAX_LOGPROBS)

    def request(self, request_id: str) -> GenerationRequest:
        """What the engine is asked, under this id. Raises `RequestError`."""
        return GenerationRequest(
            id=request_id,
            prompts=(self.prompt,),
            max_tokens=self.max_tokens,
            stop=self.stop,
            stop_tokens=tuple(self.stop_token_ids),
            sampling=self.sampling(),
            stream=self.stream,
            cache_prompt=self.cache_prompt,
            cache_partition=self.cache_salt or "",
            speculative=self.speculative,
            grammar=self.constraint(),
            logprobs=self.logprobs,
            token_ids=self.return_token_ids,
        )


class Generate:
    """Continues one text."""

    def __init__(self, models: Models) -> None:
        self._models = models

    async def create(self, call: Call[GenerateBody]) -> JsonReply[Success] | EventStream:
        """Answer whole, or with a stream of texts that ends in what would have been the whole answer."""
        body = call.body
        served = await self._models.resolve(None)
        request = body.request(call.caller.request_id)
        ids = await prompt_ids(served.engine, request.prompts) if body.return_token_ids else ()
        envelope = Envelope(body, ids)
        if body.stream:
            source = served.generations.stream(call.caller, request, envelope.encode, body.engine_names)
            return EventStream(source, end=b"")
        answer = await served.generations.run(call.caller, request, body.engine_names)
        return JsonReply(envelope.success(answer.prompt_tokens, *answer.outcomes))


class Envelope:
    """One answer, timed from its creation."""

    def __init__(self, body: GenerateBody, ids: PromptIds) -> None:
        """Args: `ids`, the prompt's tokens if they are asked for."""
        self._id = f"gen-{uuid4().hex}"
        self._began = anyio.current_time()
        self._body = body
        self._ids = ids
        self._texts: list[str] = []
        self._details: list[TokenDetail] = []

    def encode(self, prompt_tokens: Sequence[int], events: Sequence[Text | Finished]) -> bytes:
        """An event of its own for each piece of text, and the whole answer behind the last one."""
        encoded = b""
        for event in events:
            if event.text:
                encoded += b'data: {"text":%b}\n\n' % orjson.dumps(event.text)
            if isinstance(event, Finished):
                encoded += b"data: %b\n\n" % orjson.dumps(self.success(prompt_tokens, event))
            else:
                self._texts.append(event.text)
                self._details += event.details
        return encoded

    def success(self, prompt_tokens: Sequence[int], end: Finished) -> dict[str, Any]:
        """The whole answer, whose last event this is. Times are in seconds."""
        seconds = anyio.current_time() - self._began
        data = {
            "id": self._id,
            "text": "".join([*self._texts, end.text]),
            "tokens": end.tokens,
            "finish_reason": end.reason,
            "response_time": round(seconds, 6),
            "tokens_per_second": round(end.tokens / seconds, 3) if seconds > 0 else 0.0,
        }
        return {"success": True, "data": data | self._asked(prompt_tokens, end)}

    def _asked(self, prompt_tokens: Sequence[int], end: Finished) -> dict[str, Any]:
        """What only those get who ask for it."""
        details = [*self._details, *end.details]
        asked: dict[str, Any] = {}
        if self._body.logprobs is not None:
            asked["logprobs"] = LegacyLogprobs().encode(details)
        if self._body.return_token_ids:
            (asked["prompt_token_ids"],) = self._ids
            asked["token_ids"] = [detail.id for detail in details]
        if self._body.timings:
            asked["timings"] = timings(prompt_tokens, [end])
        return asked
