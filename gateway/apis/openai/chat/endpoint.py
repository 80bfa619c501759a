"""`POST /v1/chat/completions`, as OpenAI defines it."""

from starlette.requests import Request
from starlette.types import ASGIApp

from engine import Engine
from gateway.apis.answers.prompt_ids import prompt_ids
from gateway.apis.answers.reply import json_reply
from gateway.apis.fields.read import BodyReader
from gateway.apis.openai.chat.completion import chat_head, completion
from gateway.apis.openai.chat.request import ChatBody
from gateway.apis.openai.chat.stream import ChatChunks
from gateway.middleware.sse import EventStream
from gateway.serving.generations import Generations
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
        head = chat_head(body, self._models.name, self._models.fingerprint)
        if body.stream:
            encode = ChatChunks(head, body, prompt, ids).encode
            return EventStream(self._generations.stream(http, request, encode, body.engine_names))
        answer = await self._generations.run(http, request, body.engine_names)
        return json_reply(completion(head, body, prompt, ids, answer))
