"""Endpoints of Ollama's chats and prompts: `/api/chat` and `/api/generate`."""

import anyio

from gateway.apis.answers.reply import JsonReply
from gateway.apis.endpoint import QUEUED, AnyEndpoint, Call, Endpoint
from gateway.apis.ollama.answer import ChatLine, GenerateLine
from gateway.apis.ollama.call import TextCall, prepare_chat, prepare_generate
from gateway.apis.ollama.errors import OllamaError
from gateway.apis.ollama.lines import (
    Lines,
    LineT,
    MessageReader,
    Shape,
    Terms,
    chat_line,
    generate_line,
    only_loaded,
)
from gateway.apis.ollama.names import resolve
from gateway.apis.ollama.request import OllamaChatBody, OllamaGenerateBody
from gateway.middleware.streams.sse import LINES, EventStream
from gateway.serving.models import Models
from gateway.serving.records import Operation


class TextEndpoints:
    """Handlers for chats and prompts."""

    def __init__(self, models: Models) -> None:
        self._models = models

    async def chat(self, call: Call[TextCall]) -> JsonReply[ChatLine] | EventStream:
        """Return the whole answer to a chat, or a stream of its lines."""
        return await self._answer(call, chat_line)

    async def generate(self, call: Call[TextCall]) -> JsonReply[GenerateLine] | EventStream:
        """Return the whole answer to a prompt, or a stream of its lines."""
        return await self._answer(call, generate_line)

    async def _answer(self, call: Call[TextCall], shape: Shape[LineT]) -> JsonReply[LineT] | EventStream:
        asked, caller, request = call.prepared, call.caller, call.prepared.request
        if request is None:
            return JsonReply(await self._load(call, shape))
        served = await resolve(self._models, caller, asked.model, keep_alive=asked.keep_alive)
        loaded, names = anyio.current_time(), asked.names
        prompt = None
        if asked.conversation is not None and (served.prompts.source(served.loaded) or not request.prompts):
            prompt = await served.prompts.prompt(caller, asked.conversation, names)
            request = prompt.generation(request)
        began = caller.exchange.began_at
        terms = Terms(model=asked.model, shape=shape, prompt=prompt, began=began, loaded=loaded)
        del call, asked  # the conversation, which may be large, is not needed while the engine works
        operation = Operation.TEXT_COMPLETION if prompt is None else Operation.CHAT
        if request.stream:
            source = served.generations.stream(caller, request, Lines(terms).encode, names, operation=operation)
            return EventStream(source, end=b"", framing=LINES)
        result = await served.generations.run(caller, request, names, operation=operation)
        (end,) = result.outcomes
        piece = await MessageReader(prompt).whole(end.text)
        return await JsonReply.in_pieces(terms.last(piece, end.details, result.prompt_tokens, end))

    async def _load(self, call: Call[TextCall], shape: Shape[LineT]) -> LineT:
        """Load the model, or unload it if it is not to be kept at all."""
        asked = call.prepared
        if asked.keep_alive == 0:
            self._models.find(call.caller, asked.model).source.unload()
            return only_loaded(asked.model, shape, "unload")
        await resolve(self._models, call.caller, asked.model, keep_alive=asked.keep_alive)
        return only_loaded(asked.model, shape, "load")


def streams(call: TextCall) -> bool:
    """Return True for a request whose answer is a stream. One that only loads the model has no stream."""
    return call.request is not None and call.request.stream


def text_endpoints(models: Models) -> tuple[AnyEndpoint, ...]:
    """Return the endpoints of chats and prompts."""
    endpoints = TextEndpoints(models)
    chat = Endpoint(
        method="POST",
        path="/api/chat",
        id="ollamaChat",
        summary="Continue a conversation, in Ollama's shape.",
        body=OllamaChatBody,
        prepare=prepare_chat,
        handler=endpoints.chat,
        answer=ChatLine,
        events=ChatLine | OllamaError,
        streams=streams,
        stream_media=LINES.media,
        refusals=QUEUED,
    )
    generate = Endpoint(
        method="POST",
        path="/api/generate",
        id="ollamaGenerate",
        summary="Answer a prompt, or continue it (`raw`) or fill it in (`suffix`), in Ollama's shape.",
        body=OllamaGenerateBody,
        prepare=prepare_generate,
        handler=endpoints.generate,
        answer=GenerateLine,
        events=GenerateLine | OllamaError,
        streams=streams,
        stream_media=LINES.media,
        refusals=QUEUED,
    )
    return chat, generate
