"""`POST /v1/embeddings`, as OpenAI defines it."""

from starlette.requests import Request
from starlette.responses import Response

from engine import Engine, RequestError
from gateway.apis.answers.reply import json_reply
from gateway.apis.fields.read import BodyReader
from gateway.apis.openai.embeddings.answer import embeddings
from gateway.apis.openai.embeddings.request import EmbeddingBody
from gateway.middleware.closing import closing_of
from gateway.serving.models import Models


class Embeddings:
    """Parses, runs, encodes. A request that is left is cancelled, for the reason its scope has."""

    def __init__(self, bodies: BodyReader, models: Models) -> None:
        self._bodies = bodies
        self._models = models

    async def create(self, http: Request) -> Response:
        """One embedding an input, in order."""
        body = await self._bodies.read(http, EmbeddingBody)
        served = self._models.embedder(body.model)
        _check_dimensions(body, served.engine)
        closing = closing_of(http.scope)
        result = await served.engine.embed(
            body.request(http.state.request_id), why=lambda: closing.reason or "the request failed"
        )
        return json_reply(await embeddings(served.name, body, result))


def _check_dimensions(body: EmbeddingBody, engine: Engine) -> None:
    model = engine.model
    if body.dimensions is not None and model is not None and body.dimensions > model.embedding_size:
        message = f"dimensions: this model's embeddings have {model.embedding_size}"
        raise RequestError(message, code="invalid_value", param="dimensions")
