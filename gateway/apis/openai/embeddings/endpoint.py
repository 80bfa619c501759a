"""Endpoint of OpenAI's embeddings: `/v1/embeddings`."""

from engine import RequestError
from gateway.apis.answers.reply import JsonReply
from gateway.apis.endpoint import QUEUED, AnyEndpoint, Call, Endpoint
from gateway.apis.openai.embeddings.answer import Embeddings, embeddings
from gateway.apis.openai.embeddings.call import EmbeddingCall, prepare_embedding
from gateway.apis.openai.embeddings.request import EmbeddingBody
from gateway.serving.models import Models
from gateway.serving.served import Served, Task


class EmbeddingsEndpoints:
    """Handlers for embeddings."""

    def __init__(self, models: Models) -> None:
        self._models = models

    async def create(self, call: Call[EmbeddingCall]) -> JsonReply[Embeddings]:
        """Return one embedding per input, in order."""
        asked = call.prepared
        served = await self._models.resolve(call.caller, asked.model, Task.EMBED)
        check_dimensions(asked, served)
        result = await served.embed(call.caller, asked.request.replaced(id=call.caller.request_id))
        return await JsonReply.in_pieces(embeddings(served.name, asked, result))


def check_dimensions(asked: EmbeddingCall, served: Served) -> None:
    """Check the requested size of the vectors. Raises `RequestError` if those of the model are smaller."""
    if asked.dimensions is not None and asked.dimensions > served.loaded.embedding_size:
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
        prepare=prepare_embedding,
        handler=EmbeddingsEndpoints(models).create,
        answer=Embeddings,
        refusals=QUEUED,
    )
    return (create,)
