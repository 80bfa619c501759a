"""`POST /v1/chat/completions`, as OpenAI defines it."""

import time
from typing import Any
from uuid import uuid4

from engine import Finished
from gateway.apis.answers.prompt_ids import PromptIds, prompt_ids
from gateway.apis.answers.reply import JsonReply
from gateway.apis.answers.shapes import ErrorAnswer
from gateway.apis.answers.timings import timings
from gateway.apis.endpoint import NO_SUCH_MODEL, QUEUED, AnyEndpoint, Call, Endpoint
from gateway.apis.openai.chat.answer import ChatChunk, ChatCompletion
from gateway.apis.openai.chat.logprobs import chat_logprobs
from gateway.apis.openai.chat.message import finish_reason, read_message
from gateway.apis.openai.chat.request import ChatBody
from gateway.apis.openai.chat.stream import ChatChunks
from gateway.apis.openai.input_tokens import InputTokens, input_tokens
from gateway.apis.openai.usage import usage
from gateway.chat.conversation import ChatPrompt
from gateway.middleware.sse import EventStream
from gateway.serving.generations import Answer
from gateway.serving.models import Models, Served


class Chat:
    """Continues conversations."""

    def __init__(self, models: Models) -> None:
        self._models = models

    async def create(self, call: Call[ChatBody]) -> JsonReply[ChatCompletion] | EventStream:
        """Answer whole, or with a stream of chunks that ends in `[DONE]`."""
        body = call.body
        served = await self._models.resolve(body.model)
        prompt = await served.prompts.prompt(body.conversation(), body.engine_names)
        request = body.request(call.caller.request_id, prompt)
        ids = await prompt_ids(served.engine, request.prompts) if body.return_token_ids else ()
        head = chat_head(served, body)
        if body.stream:
            encode = ChatChunks(head, body, prompt, ids).encode
            return EventStream(served.generations.stream(call.caller, request, encode, body.engine_names))
        answer = await served.generations.run(call.caller, request, body.engine_names)
        return JsonReply(completion(head, body, prompt, ids, answer))

    async def count(self, call: Call[ChatBody]) -> JsonReply[InputTokens]:
        """Count the tokens of the prompt, as `usage.prompt_tokens` does."""
        served = await self._models.resolve(call.body.model)
        prompt = await served.prompts.prompt(call.body.conversation(), call.body.engine_names)
        return JsonReply(await input_tokens(served.engine, prompt.text))


def chat_head(served: Served, body: ChatBody) -> dict[str, Any]:
    """What stands first in an answer, and in each chunk of a stream. Every tier of service is the default one here."""
    head = {
        "id": f"chatcmpl-{uuid4().hex}",
        "object": "chat.completion.chunk" if body.stream else "chat.completion",
        "created": int(time.time()),
        "model": served.name,
        "system_fingerprint": served.fingerprint,
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


def chat_endpoints(models: Models) -> tuple[AnyEndpoint, ...]:
    """Return the endpoints of chat completions."""
    chat = Chat(models)
    create = Endpoint(
        method="POST",
        path="/v1/chat/completions",
        id="createChatCompletion",
        summary="Continue a conversation.",
        handler=chat.create,
        body=ChatBody,
        answer=ChatCompletion,
        events=ChatChunk | ErrorAnswer,
        refusals=QUEUED,
    )
    count = Endpoint(
        method="POST",
        path="/v1/chat/completions/input_tokens",
        id="countChatTokens",
        summary="Count the tokens of a conversation, and generate nothing.",
        handler=chat.count,
        body=ChatBody,
        answer=InputTokens,
        refusals=NO_SUCH_MODEL,
    )
    return create, count
