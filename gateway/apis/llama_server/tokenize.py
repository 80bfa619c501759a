"""`POST /tokenize` and `POST /detokenize`, as llama-server has them."""

from starlette.requests import Request
from starlette.responses import Response

from gateway.apis.answers.reply import json_reply
from gateway.apis.fields.read import BodyReader
from gateway.apis.llama_server.tokenize_answer import content, tokens
from gateway.apis.llama_server.tokenize_request import DetokenizeBody, TokenizeBody
from gateway.serving.models import Models


class Vocabulary:
    """What the model's tokens are. An engine that is busy answers all the same; a client that leaves is forgotten."""

    def __init__(self, bodies: BodyReader, models: Models) -> None:
        self._bodies = bodies
        self._models = models

    async def tokenize(self, http: Request) -> Response:
        """`{"tokens": […]}`: ids, or objects of id and piece."""
        body = await self._bodies.read(http, TokenizeBody)
        engine = self._models.find(body.model).engine
        (details,) = await engine.tokenize([body.text], special=body.parse_special, begin=body.add_special)
        return json_reply(tokens(details, with_pieces=body.with_pieces))

    async def detokenize(self, http: Request) -> Response:
        """`{"content": …}`, with control tokens by their names. Bytes that are no characters become U+FFFD."""
        body = await self._bodies.read(http, DetokenizeBody)
        engine = self._models.find(body.model).engine
        text = await engine.detokenize(body.tokens, special=True)
        return json_reply(content(text))
