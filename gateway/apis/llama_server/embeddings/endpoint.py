"""Endpoint of llama-server's `/embedding`, which is `/embeddings`, too, and its `/v1/embeddings`."""

from collections.abc import Iterator

from engine import EmbeddingInput, EmbeddingRequest, EmbeddingResult
from gateway.apis.answers.pieces import array
from gateway.apis.answers.reply import JsonReply
from gateway.apis.answers.shapes import Count, JsonObject
from gateway.apis.answers.vectors import VectorShape
from gateway.apis.endpoint import QUEUED, AnyEndpoint, Call, Endpoint
from gateway.apis.llama_server.embeddings.request import (
    NativeEmbeddingBody,
    NativeEmbeddingCall,
    prepare_native_embedding,
)
from gateway.apis.llama_server.prompts import MixedPrompt
from gateway.apis.llama_server.tokens import PromptReader
from gateway.apis.openai.embeddings.answer import Embeddings, embeddings
from gateway.serving.models import Models
from gateway.serving.served import Task


class NativeEmbedding(JsonObject):
    """The vectors of one input. The model's pooling makes it one vector."""

    index: Count
    embedding: list[list[float]]


class NativeEmbeddingsEndpoints:
    """Handlers for embeddings."""

    def __init__(self, models: Models) -> None:
        self._models = models

    async def create(self, call: Call[NativeEmbeddingCall]) -> JsonReply[list[NativeEmbedding]]:
        """Return one object per input, in order."""
        _, result = await self._embed(call)
        return await JsonReply.in_pieces(_native(call.prepared.shape, result))

    async def create_versioned(self, call: Call[NativeEmbeddingCall]) -> JsonReply[Embeddings]:
        """Return OpenAI's answer, or llama-server's if the request has `content`."""
        name, result = await self._embed(call)
        shape = call.prepared.shape
        pieces = _native(shape, result) if call.prepared.native else embeddings(name, shape, result)
        return await JsonReply.in_pieces(pieces)

    async def _embed(self, call: Call[NativeEmbeddingCall]) -> tuple[str, EmbeddingResult]:
        """Return the name of the model, and the vectors."""
        asked, caller = call.prepared, call.caller
        served = await self._models.resolve(caller, asked.model, Task.EMBED)
        field = "content" if asked.native else "input"
        reader = PromptReader(served, caller, field)
        inputs = tuple([await _input(reader, one) for one in asked.inputs])
        asked.shape.check(served.loaded.embedding_size)
        request = EmbeddingRequest(id="", inputs=inputs)
        return served.name, await served.embed(caller, request, {"input": field})


async def _input(reader: PromptReader, prompt: MixedPrompt) -> EmbeddingInput:
    """Return a text or token ids as they are, and the tokens of a mix."""
    if len(prompt) == 1:
        return prompt[0]
    ids, _ = await reader.prompt(prompt)
    return tuple(ids)


def _native(shape: VectorShape, result: EmbeddingResult) -> Iterator[bytes]:
    answers: Iterator[NativeEmbedding] = (
        {"index": at, "embedding": [shape.floats(vector)]} for at, vector in enumerate(result.vectors)
    )
    return array(answers, 1)


def native_embeddings_endpoints(models: Models) -> tuple[AnyEndpoint, ...]:
    """Return the endpoints of `/embedding`."""
    create = NativeEmbeddingsEndpoints(models).create
    return tuple(
        Endpoint(
            method="POST",
            path=path,
            id=id_,
            summary="Compute the embeddings of texts, in llama-server's shape.",
            body=NativeEmbeddingBody,
            prepare=prepare_native_embedding,
            handler=create,
            answer=list[NativeEmbedding],
            refusals=QUEUED,
        )
        for path, id_ in (("/embedding", "createNativeEmbedding"), ("/embeddings", "createNativeEmbeddings"))
    )
