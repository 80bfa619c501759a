"""`POST /v1/embeddings`, as OpenAI defines it."""

from typing import Any

import anyio.lowlevel

from engine import EmbeddingResult, RequestError
from gateway.apis.answers.reply import JsonReply
from gateway.apis.endpoint import QUEUED, AnyEndpoint, Call, Endpoint
from gateway.apis.openai.embeddings.request import EmbeddingBody
from gateway.apis.others import Embeddings
from gateway.serving.models import Models, Served, Task


class CreateEmbeddings:
    """Turns texts into vectors."""

    def __init__(self, models: Models) -> None:
        self._models = models

    async def create(self, call: Call[EmbeddingBody]) -> JsonReply[Embeddings]:
        """Answer one embedding an input, in order."""
        body = call.body
        served = await self._models.resolve(body.model, Task.EMBED)
        _check_dimensions(body, served)
        result = await served.embed(call.caller, body.request(call.caller.request_id))
        tokens = sum(result.tokens)
        return JsonReply(
            {
                "object": "list",
                "data": await _encode(body, result),
                "model": served.name,
                "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
            }
        )


def _check_dimensions(body: EmbeddingBody, served: Served) -> None:
    if body.dimensions is not None and body.dimensions > served.loaded.embedding_size:
        message = f"dimensions: this model's embeddings have {served.loaded.embedding_size}"
        raise RequestError(message, code="invalid_value", param="dimensions")


async def _encode(body: EmbeddingBody, result: EmbeddingResult) -> list[dict[str, Any]]:
    """Between two vectors others have their turn: there may be thousands."""
    data = []
    for index, vector in enumerate(result.vectors):
        data.append({"object": "embedding", "index": index, "embedding": body.encode(vector)})
        await anyio.lowlevel.checkpoint()
    return data


def embeddings_endpoints(models: Models) -> tuple[AnyEndpoint, ...]:
    """Return the endpoints of embeddings."""
    create = Endpoint(
        method="POST",
        path="/v1/embeddings",
        id="createEmbedding",
        summary="Turn texts into vectors.",
        handler=CreateEmbeddings(models).create,
        body=EmbeddingBody,
        answer=Embeddings,
        refusals=QUEUED,
    )
    return (create,)
