"""Endpoints of OpenAI's responses: `/v1/responses`, the token count of its prompt, and stored responses."""

from functools import partial

from gateway.apis.answers.input_tokens import InputTokens, count_tokens
from gateway.apis.answers.reply import JsonReply
from gateway.apis.endpoint import QUEUED, AnyEndpoint, Call, Endpoint
from gateway.apis.openai.responses.answer import Response
from gateway.apis.openai.responses.background import BackgroundResponses, BackgroundWork
from gateway.apis.openai.responses.call import ResponseCall, prepare_response
from gateway.apis.openai.responses.encoded import EncodedItem
from gateway.apis.openai.responses.events import ResponseEvent
from gateway.apis.openai.responses.input import resolve
from gateway.apis.openai.responses.request import ResponseBody
from gateway.apis.openai.responses.response import ResponseAnswer
from gateway.apis.openai.responses.store.store import ResponseStore
from gateway.apis.openai.responses.stored import stored_responses_endpoints
from gateway.apis.openai.responses.stream import ResponseEvents
from gateway.chat.conversation import ChatPrompt
from gateway.chat.rendering import append_items
from gateway.middleware.caller import Caller
from gateway.middleware.sse import EventStream
from gateway.serving.models import Models
from gateway.serving.records import Operation
from gateway.serving.served import Served


class ResponsesEndpoints:
    """Handlers that create responses.

    An ended response is stored if its request allows it. A response is not stored if its client has left.
    """

    def __init__(self, models: Models, store: ResponseStore, background: BackgroundResponses) -> None:
        self._models = models
        self._store = store
        self._background = background

    async def create(self, call: Call[ResponseCall]) -> JsonReply[Response] | EventStream:
        """Return the whole response, a stream of events, or at once a response that runs in the background."""
        asked, caller = call.prepared, call.caller
        names, stores, options = asked.names, asked.store, asked.options
        served = await self._models.resolve(call.caller, asked.model)
        inputs, prompt = await self._read(caller, asked, served)
        request = prompt.generation(asked.request, caller.request_id)
        answer = ResponseAnswer(served.name, options, prompt)
        del call, asked  # the conversation, which may be large, is not needed while the engine works
        if not stores:
            inputs = []

        def save() -> None:
            if stores:
                self._store.put(caller.credentials, answer.stored(inputs))

        if options.background:
            await self._background.start(BackgroundWork(answer, served.generations, caller, request, names, inputs))
        elif request.stream:
            events = ResponseEvents(answer, options, save)
            source = served.generations.stream(caller, request, events.encode, names, operation=Operation.CHAT)
            return EventStream(source, end=b"", encode_failure=events.fail, status=source.status)
        else:
            whole = await served.generations.run(caller, request, names, operation=Operation.CHAT)
            for end in whole.outcomes:
                await answer.add_whole(whole.prompt_tokens, end)
            save()
        return JsonReply(answer.content().fragment())

    async def count(self, call: Call[ResponseCall]) -> JsonReply[InputTokens]:
        """Return the number of tokens in the prompt, the same as `usage.input_tokens`."""
        served = await self._models.resolve(call.caller, call.prepared.model)
        _, prompt = await self._read(call.caller, call.prepared, served)
        count = await count_tokens(served.engine, prompt.text, call.caller.client, call.caller.release_body)
        return JsonReply(count)

    async def _read(self, caller: Caller, asked: ResponseCall, served: Served) -> tuple[list[EncodedItem], ChatPrompt]:
        """Return the request's own items with references replaced, and the prompt for the model."""
        previous, owner = asked.options.previous_id, caller.credentials
        history = [] if previous is None else self._store.history(owner, previous)
        inputs = resolve(asked.inputs, partial(self._store.items, owner))
        conversation = append_items(asked.conversation, (item.json for item in (*history, *inputs)))
        return inputs, await served.prompts.prompt(caller, conversation, asked.names)


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
            prepare=prepare_response,
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
            prepare=prepare_response,
            handler=endpoints.count,
            answer=InputTokens,
            refusals=QUEUED,
        ),
        *stored_responses_endpoints(store, background),
    )
