"""`POST /generate`, the predecessor's route: one prompt, one answer in an envelope that says whether it went well."""

from starlette.requests import Request
from starlette.types import ASGIApp

from engine import Engine
from gateway.apis.answers.prompt_ids import prompt_ids
from gateway.apis.answers.reply import json_reply
from gateway.apis.fields.read import BodyReader
from gateway.apis.generate.answer import Envelope
from gateway.apis.generate.errors import error_event
from gateway.apis.generate.request import GenerateBody
from gateway.middleware.sse import EventStream
from gateway.serving.generations import Generations


class Generate:
    """Parses, runs, encodes."""

    def __init__(self, engine: Engine, bodies: BodyReader, generations: Generations) -> None:
        self._engine = engine
        self._bodies = bodies
        self._generations = generations

    async def create(self, http: Request) -> ASGIApp:
        """Answers whole, or with a stream of texts that ends in what would have been the whole answer."""
        body = await self._bodies.read(http, GenerateBody)
        request = self._generations.partitioned(http, body.request(http.state.request_id))
        ids = await prompt_ids(self._engine, request.prompts) if body.return_token_ids else ()
        envelope = Envelope(body, ids)
        if body.stream:
            source = self._generations.stream(http, request, envelope.encode, body.engine_names)
            return EventStream(source, end=b"", encode_error=error_event)
        answer = await self._generations.run(http, request, body.engine_names)
        return json_reply(envelope.success(answer.prompt_tokens, *answer.outcomes))
