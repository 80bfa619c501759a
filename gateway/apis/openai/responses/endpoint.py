"""`POST /v1/responses`, as OpenAI defines it, and the count of what it would read."""

from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from engine import Engine
from gateway.apis.answers.input_tokens import input_tokens
from gateway.apis.answers.reply import json_reply
from gateway.apis.fields.read import BodyReader
from gateway.apis.openai.responses.background import BackgroundResponses, Work
from gateway.apis.openai.responses.input import resolve
from gateway.apis.openai.responses.items import Item
from gateway.apis.openai.responses.request import ResponseBody
from gateway.apis.openai.responses.response import ResponseAnswer
from gateway.apis.openai.responses.store import ResponseStore
from gateway.apis.openai.responses.stream import ResponseEvents
from gateway.chat.conversation import ChatPrompt
from gateway.middleware.closing import closing_of
from gateway.middleware.sse import EventStream
from gateway.serving.generations import Generations
from gateway.serving.models import Models
from gateway.serving.prompts import ChatPrompts


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, understood.

    Attributes:
        body: its fields.
        inputs: its own items, references replaced.
        prompt: what the model is to continue.
    """

    body: ResponseBody
    inputs: list[Item]
    prompt: ChatPrompt


class Responses:
    """Parses, runs, encodes. What ended is stored where the request allows it; what its client left is not."""

    def __init__(
        self,
        engine: Engine,
        bodies: BodyReader,
        models: Models,
        prompts: ChatPrompts,
        generations: Generations,
        store: ResponseStore,
        background: BackgroundResponses,
    ) -> None:
        self._engine = engine
        self._bodies = bodies
        self._models = models
        self._prompts = prompts
        self._generations = generations
        self._store = store
        self._background = background

    async def create(self, http: Request) -> ASGIApp:
        """Answers whole, with a stream of events, or at once with what then runs in the background."""
        asked = await self._asked(http)
        body = asked.body
        request = self._generations.partitioned(http, body.request(http.state.request_id, asked.prompt))
        answer = ResponseAnswer(self._models.name, body, asked.prompt)

        def keep() -> None:
            if body.store:
                self._store.put(answer.content(), asked.inputs)

        if body.background:
            closing = closing_of(http.scope)
            await self._background.start(Work(answer, request, body.engine_names, asked.inputs, closing))
        elif body.stream:
            events = ResponseEvents(answer, keep)
            source = self._generations.stream(http, request, events.encode, body.engine_names)
            return EventStream(source, end=b"", encode_error=events.fail)
        else:
            whole = await self._generations.run(http, request, body.engine_names)
            for end in whole.outcomes:
                answer.add(whole.prompt_tokens, end)
            keep()
        return json_reply(answer.content())

    async def count(self, http: Request) -> Response:
        """`POST /v1/responses/input_tokens`: the tokens of the prompt, as `usage.input_tokens` counts them."""
        asked = await self._asked(http)
        (tokens,) = await self._engine.tokenize([asked.prompt.text], special=True, begin=True)
        return json_reply(input_tokens(len(tokens)))

    async def _asked(self, http: Request) -> Asked:
        body = await self._bodies.read(http, ResponseBody)
        self._models.check(body.model)
        previous = body.previous_response_id
        history = [] if previous is None else self._store.history(previous)
        inputs = resolve(body.input, self._store.items)
        prompt = await self._prompts.prompt(body.conversation([*history, *inputs]), body.engine_names)
        return Asked(body, inputs, prompt)
