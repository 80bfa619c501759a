"""Endpoints of OpenAI's responses: `/v1/responses`, the token count of its prompt, and stored responses."""

from collections.abc import Iterable, Sequence
from functools import partial

from gateway.apis.answers.input_tokens import InputTokens, count_tokens
from gateway.apis.answers.reply import JsonReply
from gateway.apis.endpoint import QUEUED, AnyEndpoint, Call, Endpoint
from gateway.apis.openai.conversations.histories import Histories
from gateway.apis.openai.conversations.store import check_new
from gateway.apis.openai.responses.answer import Response
from gateway.apis.openai.responses.background import BackgroundResponses
from gateway.apis.openai.responses.call import ResponseCall, ResponseOptions, prepare_response
from gateway.apis.openai.responses.encoded import EncodedItem
from gateway.apis.openai.responses.events import ResponseEvent
from gateway.apis.openai.responses.references import referenced, resolve
from gateway.apis.openai.responses.request import ResponseBody, missing_input
from gateway.apis.openai.responses.response import ResponseAnswer
from gateway.apis.openai.responses.store.store import ResponseStore
from gateway.apis.openai.responses.stored import stored_responses_endpoints
from gateway.apis.openai.responses.stream import ResponseEvents
from gateway.apis.openai.responses.tools.names import with_model_name
from gateway.apis.openai.responses.truncation import PromptRoom, truncated
from gateway.apis.openai.responses.work import ResponseWork
from gateway.chat.conversation import ChatPrompt
from gateway.chat.rendering import append_items
from gateway.middleware.caller import Caller
from gateway.middleware.streams.sse import EventStream
from gateway.serving.models import Models
from gateway.serving.records import Operation
from gateway.serving.served import Served


class ResponsesEndpoints:
    """Handlers that create responses.

    An ended response is stored if its request allows it. A response is not stored if its client has left.
    """

    def __init__(
        self, models: Models, store: ResponseStore, histories: Histories, background: BackgroundResponses
    ) -> None:
        self._models = models
        self._store = store
        self._histories = histories
        self._background = background

    async def create(self, call: Call[ResponseCall]) -> JsonReply[Response] | EventStream:
        """Return the whole response, a stream of events, or at once a response that runs in the background."""
        asked, caller = call.prepared, call.caller
        served = await self._models.resolve(caller, asked.model)
        if asked.store:
            await self._store.ready()
        turn, history = await self._histories.begin(caller, asked)
        try:
            inputs, prompt = await self._read(caller, asked, served, history)
            request = prompt.generation(asked.request)
            sampling = served.generations.with_defaults(request).sampling
            answer = ResponseAnswer(served.name, asked.options, prompt, sampling)
            options, kept, store = asked.options, inputs if asked.store else [], self._store if asked.store else None
            work = ResponseWork(answer, served.generations, caller, request, asked.names, kept, store, turn)
            del call, asked, history, inputs  # the items, which may be large, are not needed while the engine works
            if options.background:
                await self._background.start(work)
                return JsonReply(answer.content().fragment())
            return await self._answer(work, options)
        except BaseException:
            await turn.cancel()  # before the error is sent, so that the client can try again
            raise

    async def _answer(self, work: ResponseWork, options: ResponseOptions) -> JsonReply[Response] | EventStream:
        answer, request = work.answer, work.request
        if request.stream:
            events = ResponseEvents(answer, options)
            source = work.generations.stream(work.caller, request, events.encode, work.names, operation=Operation.CHAT)
            return EventStream(
                work.ending(source, events),
                end=b"",
                encode_failure=events.fail,
                after_failure=partial(work.end_failed, events),
                status=source.status,
            )
        whole = await work.generations.run(work.caller, request, work.names, operation=Operation.CHAT)
        for end in whole.outcomes:
            await answer.add_whole(whole.prompt_tokens, end)
        await work.end()
        return JsonReply(answer.content().fragment())

    async def count(self, call: Call[ResponseCall]) -> JsonReply[InputTokens]:
        """Return the number of tokens in the prompt, the same as `usage.input_tokens`."""
        served = await self._models.resolve(call.caller, call.prepared.model)
        history = await self._histories.read(call.caller, call.prepared)
        _, prompt = await self._read(call.caller, call.prepared, served, history)
        caller = call.caller
        count = await count_tokens(served.engine, prompt.text, caller.client, "input", caller.release_body)
        return JsonReply({"object": "response.input_tokens", "input_tokens": count})

    async def _read(
        self, caller: Caller, asked: ResponseCall, served: Served, history: Sequence[EncodedItem]
    ) -> tuple[list[EncodedItem], ChatPrompt]:
        """Return the request's own items with references replaced, and the prompt for the model."""
        found = await self._store.items(caller.credentials, referenced(asked.inputs), "input")
        inputs = resolve(asked.inputs, found)
        if asked.conversation_id is not None:
            check_new(history, inputs, "input")
        items = (*history, *inputs)
        if not items:
            raise missing_input()

        async def render(part: Iterable[EncodedItem]) -> ChatPrompt:
            conversation = append_items(asked.conversation, (with_model_name(item.json) for item in part))
            return await served.prompts.prompt(caller, conversation, asked.names)

        prompt = await render(items)
        if asked.truncates:
            room = PromptRoom(served.engine, served.loaded.context, caller.client, asked.request.max_tokens)
            prompt = await truncated(prompt, items, render, room)
        return inputs, prompt


def responses_endpoints(
    models: Models, store: ResponseStore, histories: Histories, background: BackgroundResponses
) -> tuple[AnyEndpoint, ...]:
    """Return the endpoints of responses."""
    endpoints = ResponsesEndpoints(models, store, histories, background)
    return (
        Endpoint(
            method="POST",
            path="/v1/responses",
            id="createResponse",
            summary="Continue a conversation, also a stored one or that of a stored response.",
            body=ResponseBody,
            prepare=prepare_response,
            handler=endpoints.create,
            answer=Response,
            events=ResponseEvent,
            streams=lambda call: call.request.stream,
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
