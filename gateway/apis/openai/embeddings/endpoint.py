"""Endpoint of OpenAI's embeddings: `/v1/embeddings`."""

from gateway.apis.answers.reply import JsonReply
from gateway.apis.endpoint import QUEUED, AnyEndpoint, Call, Endpoint
from gateway.apis.openai.embeddings.answer import Embeddings, embeddings
from gateway.apis.openai.embeddings.call import EmbeddingCall, prepare_embedding
from gateway.apis.openai.embeddings.request import EmbeddingBody
from gateway.serving.models import Models
from gateway.serving.served import Task


class EmbeddingsEndpoints:
    """Handlers for embeddings."""

    def __init__(self, models: Models) -> None:
        self._models = models

    async def create(self, call: Call[EmbeddingCall]) -> JsonReply[Embeddings]:
        """Return one embedding per input, in order."""
        asked = call.prepared
        served = await self._models.resolve(call.caller, asked.model, Task.EMBED)
        asked.shape.check(served.loaded.embedding_size)
        result = await served.embed(call.caller, asked.request)
        return await JsonReply.in_pieces(embeddings(served.name, asked.shape, result))


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
