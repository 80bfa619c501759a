"""Endpoints of OpenAI's responses: `/v1/responses`, the token count of its prompt, and stored responses."""

from gateway.apis.answers.input_tokens import InputTokens, count_tokens
from gateway.apis.answers.reply import JsonReply
from gateway.apis.endpoint import NO_SUCH_MODEL, QUEUED, AnyEndpoint, Call, Endpoint, unprepared
from gateway.apis.openai.responses.answer import Response
from gateway.apis.openai.responses.background import BackgroundResponses, BackgroundWork
from gateway.apis.openai.responses.events import ResponseEvent
from gateway.apis.openai.responses.input import resolve
from gateway.apis.openai.responses.items import Item
from gateway.apis.openai.responses.request import ResponseBody
from gateway.apis.openai.responses.response import ResponseAnswer
from gateway.apis.openai.responses.store import ResponseStore
from gateway.apis.openai.responses.stored import stored_responses_endpoints
from gateway.apis.openai.responses.stream import ResponseEvents
from gateway.chat.conversation import ChatPrompt
from gateway.chat.rendering import encode_conversation
from gateway.middleware.caller import Caller
from gateway.middleware.sse import EventStream
from gateway.serving.models import Models, Served


class ResponsesEndpoints:
    """Handlers that create responses.

    An ended response is stored if its request allows it. A response is not stored if its client has left.
    """

    def __init__(self, models: Models, store: ResponseStore, background: BackgroundResponses) -> None:
        self._models = models
        self._store = store
        self._background = background

    async def create(self, call: Call[ResponseBody]) -> JsonReply[Response] | EventStream:
        """Return the whole response, a stream of events, or at once a response that runs in the background."""
        body, caller = call.prepared, call.caller
        served = await self._models.resolve(body.model)
        inputs, prompt = await self._read(caller, body, served)
        request = body.request(caller.request_id, prompt)
        answer = ResponseAnswer(served.name, body, prompt)

        def save() -> None:
            if body.store:
                self._store.put(answer.content(), inputs)

        if body.background:
            await self._background.start(
                BackgroundWork(answer, served.generations, caller, request, body.engine_names, inputs)
            )
        elif body.stream:
            events = ResponseEvents(answer, save)
            source = served.generations.stream(caller, request, events.encode, body.engine_names)
            return EventStream(source, end=b"", encode_failure=events.fail)
        else:
            whole = await served.generations.run(caller, request, body.engine_names)
            for end in whole.outcomes:
                answer.add(whole.prompt_tokens, end)
            save()
        return JsonReply(answer.content())

    async def count(self, call: Call[ResponseBody]) -> JsonReply[InputTokens]:
        """Return the number of tokens in the prompt, the same as `usage.input_tokens`."""
        served = await self._models.resolve(call.prepared.model)
        _, prompt = await self._read(call.caller, call.prepared, served)
        return JsonReply(await count_tokens(served.engine, prompt.text, call.caller.client))

    async def _read(self, caller: Caller, body: ResponseBody, served: Served) -> tuple[list[Item], ChatPrompt]:
        """Return the request's own items with references replaced, and the prompt for the model."""
        previous = body.previous_response_id
        history = [] if previous is None else self._store.history(previous)
        inputs = resolve(body.input, self._store.items)
        conversation = encode_conversation(body.conversation([*history, *inputs]))
        return inputs, await served.prompts.prompt(caller, conversation, body.engine_names)


def responses_endpoints(
    models: Models, store: ResponseStore, background: BackgroundResponses
) -> tuple[AnyEndpoint, ...]:
    """Return the endpoints of responses."""
    endpoints = ResponsesEndpoints(models, store, background)
    return (
        Endpoint(
            method="POST",
            path="/v1/responses",
            id="createResponse",
            summary="Continue a conversation, also that of a stored response.",
            body=ResponseBody,
            prepare=unprepared,
            handler=endpoints.create,
            answer=Response,
            events=ResponseEvent,
            ends_with_done=False,
            refusals=QUEUED,
        ),
        Endpoint(
            method="POST",
            path="/v1/responses/input_tokens",
            id="getinputtokencounts",
            summary="Count the tokens of an input without generating.",
            body=ResponseBody,
            prepare=unprepared,
            handler=endpoints.count,
            answer=InputTokens,
            refusals=NO_SUCH_MODEL,
        ),
        *stored_responses_endpoints(store, background),
    )
