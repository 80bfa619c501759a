"""Endpoint of OpenAI's embeddings: `/v1/embeddings`."""

from engine import RequestError
from gateway.apis.answers.reply import JsonReply
from gateway.apis.endpoint import QUEUED, AnyEndpoint, Call, Endpoint, unprepared
from gateway.apis.openai.embeddings.answer import Embeddings, embeddings
from gateway.apis.openai.embeddings.request import EmbeddingBody
from gateway.serving.models import Models, Served, Task


class EmbeddingsEndpoints:
    """Handlers for embeddings."""

    def __init__(self, models: Models) -> None:
        self._models = models

    async def create(self, call: Call[EmbeddingBody]) -> JsonReply[Embeddings]:
        """Return one embedding per input, in order."""
        body = call.prepared
        served = await self._models.resolve(body.model, Task.EMBED)
        _check_dimensions(body, served)
        result = await served.embed(call.caller, body.request(call.caller.request_id))
        return JsonReply(await embeddings(served.name, body, result))


def _check_dimensions(body: EmbeddingBody, served: Served) -> None:
    if body.dimensions is not None and body.dimensions > served.loaded.embedding_size:
        message = f"dimensions: this model's embeddings have {served.loaded.embedding_size}"
        raise RequestError(message, code="invalid_value", param="dimensions")


def embeddings_endpoints(models: Models) -> tuple[AnyEndpoint, ...]:
    """Return the endpoints of embeddings."""
    create = Endpoint(
        method="POST",
        path="/v1/embeddings",
        id="createEmbedding",
        summary="Compute the embeddings of texts.",
        body=EmbeddingBody,
        prepare=unprepared,
        handler=EmbeddingsEndpoints(models).create,
        answer=Embeddings,
        refusals=QUEUED,
    )
    return (create,)
