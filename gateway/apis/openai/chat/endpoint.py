"""`POST /v1/chat/completions`, as OpenAI defines it."""

import time
from typing import Any
from uuid import uuid4

from starlette.requests import Request
from starlette.types import ASGIApp

from engine import Engine, Finished
from gateway.apis.answers.prompt_ids import PromptIds, prompt_ids
from gateway.apis.answers.reply import json_reply
from gateway.apis.answers.timings import timings
from gateway.apis.fields.read import BodyReader
from gateway.apis.openai.chat.logprobs import chat_logprobs
from gateway.apis.openai.chat.message import finish_reason, read_message
from gateway.apis.openai.chat.request import ChatBody
from gateway.apis.openai.chat.stream import ChatChunks
from gateway.apis.openai.usage import usage
from gateway.chat.conversation import ChatPrompt
from gateway.middleware.sse import EventStream
from gateway.serving.generations import Answer, Generations
from gateway.serving.models import Models
from gateway.serving.prompts import ChatPrompts


class Chat:
    """Parses, runs, encodes."""

    def __init__(
        self, engine: Engine, bodies: BodyReader, models: Models, prompts: ChatPrompts, generations: Generations
    ) -> None:
        self._engine = engine
        self._bodies = bodies
        self._models = models
        self._prompts = prompts
        self._generations = generations

    async def create(self, http: Request) -> ASGIApp:
        """Answers whole, or with a stream of chunks that ends in `[DONE]`."""
        body = await self._bodies.read(http, ChatBody)
        self._models.check(body.model)
        prompt = await self._prompts.prompt(body.conversation(), body.engine_names)
        request = self._generations.partitioned(http, body.request(http.state.request_id, prompt))
        ids = await prompt_ids(self._engine, request.prompts) if body.return_token_ids else ()
        head = chat_head(self._models, body)
        if body.stream:
            encode = ChatChunks(head, body, prompt, ids).encode
            return EventStream(self._generations.stream(http, request, encode, body.engine_names))
        answer = await self._generations.run(http, request, body.engine_names)
        return json_reply(completion(head, body, prompt, ids, answer))


def chat_head(models: Models, body: ChatBody) -> dict[str, Any]:
    """What stands first in an answer, and in each chunk of a stream. Every tier of service is the default one here."""
    head = {
        "id": f"chatcmpl-{uuid4().hex}",
        "object": "chat.completion.chunk" if body.stream else "chat.completion",
        "created": int(time.time()),
        "model": models.name,
        "system_fingerprint": models.fingerprint,
    }
    return head if body.service_tier is None else {**head, "service_tier": "default"}


def completion(
    head: dict[str, Any], body: ChatBody, prompt: ChatPrompt, ids: PromptIds, answer: Answer
) -> dict[str, Any]:
    """The whole answer."""
    told = {
        **head,
        "choices": [_choice(body, prompt, end) for end in answer.outcomes],
        "usage": usage(answer.prompt_tokens, answer.outcomes),
    }
    if body.timings:
        told["timings"] = timings(answer.prompt_tokens, answer.outcomes)
    if body.return_token_ids:
        told["prompt_token_ids"] = ids[0]
    return told


def _choice(body: ChatBody, prompt: ChatPrompt, end: Finished) -> dict[str, Any]:
    message = read_message(prompt, end.text, deprecated=body.deprecated_calls)
    called = "tool_calls" in message or "function_call" in message
    choice = {
        "index": end.choice,
        "message": message,
        "logprobs": chat_logprobs(end.details) if body.logprobs else None,
        "finish_reason": finish_reason(end, called=called, deprecated=body.deprecated_calls),
        "stop_reason": end.stop,
    }
    if body.return_token_ids:
        choice["token_ids"] = [detail.id for detail in end.details]
    return choice
