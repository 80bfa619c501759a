"""`POST /v1/completions`, as OpenAI defines it."""

from starlette.requests import Request
from starlette.types import ASGIApp

from engine import Engine, GenerationRequest, RequestError
from gateway.apis.answers.prompt_ids import PromptIds, prompt_ids
from gateway.apis.answers.reply import json_reply
from gateway.apis.fields.read import BodyReader
from gateway.apis.openai.completions.completion import completion, completion_head
from gateway.apis.openai.completions.request import CompletionBody
from gateway.apis.openai.completions.stream import CompletionChunks
from gateway.middleware.sse import EventStream
from gateway.serving.generations import Generations
from gateway.serving.models import Models


class Completions:
    """Parses, runs, encodes."""

    def __init__(self, engine: Engine, bodies: BodyReader, models: Models, generations: Generations) -> None:
        self._engine = engine
        self._bodies = bodies
        self._models = models
        self._generations = generations

    async def create(self, http: Request) -> ASGIApp:
        """Answers whole, or with a stream of chunks that ends in `[DONE]`."""
        body = await self._bodies.read(http, CompletionBody)
        self._models.check(body.model)
        self._check_suffix(body)
        request = self._generations.partitioned(http, body.request(http.state.request_id))
        ids = await self._prompt_ids(body, request)
        head = completion_head(self._models.name, self._models.fingerprint)
        if body.stream:
            encode = CompletionChunks(head, body, ids).encode
            return EventStream(self._generations.stream(http, request, encode, body.engine_names))
        answer = await self._generations.run(http, request, body.engine_names)
        return json_reply(completion(head, body, ids, answer))

    def _check_suffix(self, body: CompletionBody) -> None:
        model = self._engine.model
        if body.suffix and model is not None and not model.infills:
            message = "suffix: this model has no tokens for filling in between two texts"
            raise RequestError(message, code="unsupported", param="suffix")

    async def _prompt_ids(self, body: CompletionBody, request: GenerationRequest) -> PromptIds:
        return await prompt_ids(self._engine, request.prompts) if body.return_token_ids else ()
