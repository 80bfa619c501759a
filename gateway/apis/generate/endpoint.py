"""`POST /generate`, the predecessor's route: one prompt, one answer in an envelope that says whether it went well."""

from collections.abc import Sequence
from typing import Annotated, Any
from uuid import uuid4

import anyio
import orjson
from pydantic import BeforeValidator, Field
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from engine import Engine, Finished, GenerationRequest, Text, TokenDetail
from gateway.apis.answers.legacy_logprobs import LegacyLogprobsEncoder
from gateway.apis.answers.prompt_ids import PromptIds, prompt_ids
from gateway.apis.answers.reply import json_reply
from gateway.apis.answers.timings import timings
from gateway.apis.fields.constraints import GrammarFields
from gateway.apis.fields.prompts import Prompt, PromptForm, read_prompts
from gateway.apis.fields.read import BodyReader
from gateway.apis.fields.sampling import MAX_INT, MAX_LOGPROBS, ReportFields, SamplingFields
from gateway.middleware.errors import Problem
from gateway.middleware.sse import EventStream
from gateway.serving.generations import Generations

PATH = "/generate"
FIRST_FAILURE = 400
JSON_TYPE = (b"content-type", b"application/json")


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
    """Parses, runs, encodes."""

    def __init__(self, engine: Engine, bodies: BodyReader, generations: Generations) -> None:
        self._engine = engine
        self._bodies = bodies
        self._generations = generations

    async def create(self, http: Request) -> ASGIApp:
        """Answers whole, or with a stream of texts that ends in what would have been the whole answer."""
        body = await self._bodies.read(http, GenerateBody)
        request = self._generations.partitioned(http, body.request(http.state.request_id))
        ids = await prompt_ids(self._engine, request.prompts) if body.return_token_ids else ()
        envelope = Envelope(body, ids)
        if body.stream:
            source = self._generations.stream(http, request, envelope.encode, body.engine_names)
            return EventStream(source, end=b"", encode_error=error_event)
        answer = await self._generations.run(http, request, body.engine_names)
        return json_reply(envelope.success(answer.prompt_tokens, *answer.outcomes))


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
            asked["logprobs"] = LegacyLogprobsEncoder().encode(details)
        if self._body.return_token_ids:
            (asked["prompt_token_ids"],) = self._ids
            asked["token_ids"] = [detail.id for detail in details]
        if self._body.timings:
            asked["timings"] = timings(prompt_tokens, [end])
        return asked


def failure(error: bytes) -> bytes:
    """The envelope of a failure, given the JSON object `{"error": {...}}`."""
    return b'{"success":false,' + error[1:]


def error_event(problem: Problem) -> bytes:
    """The event that ends a stream which failed."""
    return b"data: %b\n\n" % failure(problem.body())


class FailureEnvelope:
    """Puts the failures of this route into its envelope, wherever they come from. Belongs around `RequestScope`."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "http" and scope["path"] == PATH:
            send = _FailureSender(send).send
        await self._app(scope, receive, send)


def is_failure(head: Message) -> bool:
    """Whether a response starts here whose body is a JSON object `{"error": {...}}`."""
    return head["status"] >= FIRST_FAILURE and JSON_TYPE in head["headers"]


class _FailureSender:
    """Holds a failure's head back until its one body message is there."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._head: Message | None = None

    async def send(self, message: Message) -> None:
        """ASGI's `send`."""
        if message["type"] == "http.response.start" and is_failure(message):
            self._head = message
            return
        if self._head is not None:
            body = failure(message["body"])
            length = (b"content-length", b"%d" % len(body))
            headers = [length if name == b"content-length" else (name, value) for name, value in self._head["headers"]]
            await self._send({**self._head, "headers": headers})
            self._head, message = None, {**message, "body": body}
        await self._send(message)
