"""`POST /v1/responses`, as OpenAI defines it, and the count of what it would read."""

from gateway.apis.answers.input_tokens import InputTokens, count_tokens
from gateway.apis.answers.reply import JsonReply
from gateway.apis.endpoint import Call
from gateway.apis.openai.responses.answer import Response
from gateway.apis.openai.responses.background import BackgroundResponses, BackgroundWork
from gateway.apis.openai.responses.input import resolve
from gateway.apis.openai.responses.items import Item
from gateway.apis.openai.responses.request import ResponseBody
from gateway.apis.openai.responses.response import ResponseAnswer
from gateway.apis.openai.responses.store import ResponseStore
from gateway.apis.openai.responses.stream import ResponseEvents
from gateway.chat.conversation import ChatPrompt
from gateway.middleware.sse import EventStream
from gateway.serving.models import Models, Served


class Responses:
    """Continues conversations, stored ones too.

    A response that ended is stored where the request allows it; one whose client left is not.
    """

    def __init__(self, models: Models, store: ResponseStore, background: BackgroundResponses) -> None:
        self._models = models
        self._store = store
        self._background = background

    async def create(self, call: Call[ResponseBody]) -> JsonReply[Response] | EventStream:
        """Answer whole, with a stream of events, or at once with what then runs in the background."""
        body, caller = call.body, call.caller
        served = await self._models.resolve(body.model)
        inputs, prompt = await self._read(body, served)
        request = body.request(caller.request_id, prompt)
        answer = ResponseAnswer(served.name, body, prompt)

        def keep() -> None:
            if body.store:
                self._store.put(answer.content(), inputs)

        if body.background:
            await self._background.start(
                BackgroundWork(answer, served.generations, caller, request, body.engine_names, inputs)
            )
        elif body.stream:
            events = ResponseEvents(answer, keep)
            source = served.generations.stream(caller, request, events.encode, body.engine_names)
            return EventStream(source, end=b"", encode_failure=events.fail)
        else:
            whole = await served.generations.run(caller, request, body.engine_names)
            for end in whole.outcomes:
                answer.add(whole.prompt_tokens, end)
            keep()
        return JsonReply(answer.content())

    async def count(self, call: Call[ResponseBody]) -> JsonReply[InputTokens]:
        """Count the tokens of the prompt, as `usage.input_tokens` does."""
        served = await self._models.resolve(call.body.model)
        _, prompt = await self._read(call.body, served)
        return JsonReply(await count_tokens(served.engine, prompt.text))

    async def _read(self, body: ResponseBody, served: Served) -> tuple[list[Item], ChatPrompt]:
        """Return the request's own items with references replaced, and the prompt that the model is to continue."""
        previous = body.previous_response_id
        history = [] if previous is None else self._store.history(previous)
        inputs = resolve(body.input, self._store.items)
        return inputs, await served.prompts.prompt(body.conversation([*history, *inputs]), body.engine_names)
