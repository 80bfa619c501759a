"""Endpoints of OpenAI's chat completions: `/v1/chat/completions`, and the token count of its prompt."""

from collections.abc import Mapping

from engine import GenerationRequest
from gateway.apis.answers.input_tokens import InputTokens, count_tokens
from gateway.apis.answers.prompt_ids import prompt_ids
from gateway.apis.answers.reply import JsonReply
from gateway.apis.answers.shapes import ErrorAnswer
from gateway.apis.endpoint import QUEUED, AnyEndpoint, Call, Endpoint
from gateway.apis.openai.chat.answer import ChatChunk, ChatCompletion
from gateway.apis.openai.chat.call import ChatCall, prepare_chat
from gateway.apis.openai.chat.completion import chat_head, completion
from gateway.apis.openai.chat.request import ChatBody
from gateway.apis.openai.chat.stream import ChatChunks
from gateway.middleware.caller import Caller
from gateway.middleware.streams.sse import EventStream
from gateway.serving.generations import GenerationResult
from gateway.serving.models import Models
from gateway.serving.records import Operation
from gateway.serving.served import Served


class ChatEndpoints:
    """Handlers for chat completions."""

    def __init__(self, models: Models, *, verbose: bool = False) -> None:
        """Create the handlers. With `verbose`, every whole answer is verbose, which variants of the API support."""
        self._models = models
        self._verbose = verbose

    async def create(self, call: Call[ChatCall]) -> JsonReply[ChatCompletion] | EventStream:
        """Return the whole completion, or a stream of chunks that ends in `[DONE]`."""
        chat, caller = call.prepared, call.caller
        options, names = chat.options, chat.names
        served = await self._models.resolve(call.caller, chat.model)
        prompt = await served.prompts.prompt(caller, chat.conversation, names)
        request = prompt.generation(chat.request)
        del call, chat  # the conversation, which may be large, is not needed while the engine works
        ids = (
            await prompt_ids(served.engine, request.prompts, caller.client, "messages")
            if options.report.token_ids
            else ()
        )
        head = chat_head(options, served.name, served.fingerprint)
        if request.stream:
            encode = ChatChunks(head, options, prompt, ids).encode
            source = served.generations.stream(caller, request, encode, names, operation=Operation.CHAT)
            running = self._models.running.listed(caller, head["id"], request, source)
            return EventStream(running, status=source.status)
        answer = await served.generations.run(caller, request, names, operation=Operation.CHAT)
        verbose = options.verbose or self._verbose
        more = await self._more(served, caller, request, answer) if verbose else {}
        return await JsonReply.in_pieces(await completion(head, options, prompt, ids, answer, more))

    async def _more(
        self, served: Served, caller: Caller, request: GenerationRequest, answer: GenerationResult
    ) -> Mapping[str, object]:
        """Return more fields for a whole answer that should be verbose."""
        raise NotImplementedError

    async def count(self, call: Call[ChatCall]) -> JsonReply[InputTokens]:
        """Return the number of tokens in the prompt, the same as `usage.prompt_tokens`."""
        chat, caller = call.prepared, call.caller
        served = await self._models.resolve(caller, chat.model)
        prompt = await served.prompts.prompt(caller, chat.conversation, chat.names)
        count = await count_tokens(served.engine, prompt.text, caller.client, "messages", caller.release_body)
        return JsonReply({"object": "response.input_tokens", "input_tokens": count})


def chat_endpoints(models: Models) -> tuple[AnyEndpoint, ...]:
    """Return the endpoints of chat completions."""
    endpoints = ChatEndpoints(models)
    create = Endpoint(
        method="POST",
        path="/v1/chat/completions",
        id="createChatCompletion",
        summary="Continue a conversation.",
        body=ChatBody,
        prepare=prepare_chat,
        handler=endpoints.create,
        answer=ChatCompletion,
        events=ChatChunk | ErrorAnswer,
        streams=lambda call: call.request.stream,
        refusals=QUEUED,
    )
    count = Endpoint(
        method="POST",
        path="/v1/chat/completions/input_tokens",
        id="countChatTokens",
        summary="Count the tokens of a conversation without generating.",
        body=ChatBody,
        prepare=prepare_chat,
        handler=endpoints.count,
        answer=InputTokens,
        refusals=QUEUED,
    )
    return create, count
