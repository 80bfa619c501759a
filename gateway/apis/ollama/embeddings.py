"""Endpoints of Ollama's embeddings: `/api/embed`, and the older `/api/embeddings`."""

from dataclasses import dataclass
from typing import Annotated

import anyio
from pydantic import Field

from engine import EmbeddingRequest, EmbeddingResult
from gateway.apis.answers.pieces import HOLE, array, filled
from gateway.apis.answers.reply import JsonReply
from gateway.apis.answers.shapes import Count, JsonObject
from gateway.apis.answers.vectors import VectorShape, to_floats
from gateway.apis.endpoint import QUEUED, AnyEndpoint, Call, Endpoint
from gateway.apis.fields.json_types import by_json, of_json
from gateway.apis.fields.sampling import MAX_INT
from gateway.apis.ollama.answer import nanoseconds
from gateway.apis.ollama.names import resolve
from gateway.apis.ollama.request import ModelFields
from gateway.serving.models import Models
from gateway.serving.served import Task

MAX_INPUTS = 2048


class EmbedBody(ModelFields):
    """The body of a request for embeddings."""

    input: Annotated[
        Annotated[str, of_json("string")] | Annotated[list[str], Field(max_length=MAX_INPUTS), of_json("array")],
        by_json("should be a string or an array of strings"),
    ]
    truncate: bool = True
    dimensions: int | None = Field(None, ge=1, le=MAX_INT)


class EmbeddingsBody(ModelFields):
    """The body of a request for one embedding."""

    prompt: str = ""


class Embedded(JsonObject):
    """One embedding per input, in order. Times are in nanoseconds."""

    model: str
    embeddings: list[list[float]]
    total_duration: Count
    load_duration: Count
    prompt_eval_count: Count


class OneEmbedding(JsonObject):
    """The embedding of a prompt; empty without a prompt."""

    embedding: list[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedCall:
    """A request for embeddings."""

    model: str
    """Name of the model, as the client wrote it."""
    keep_alive: float | None
    """Seconds that the model stays loaded after the request."""
    request: EmbeddingRequest
    """The engine's request, without an id. Without inputs it only loads the model."""
    shape: VectorShape
    """Shape of the vectors."""


def prepare_embed(body: EmbedBody) -> EmbedCall:
    """Return the request in a body. An empty text loads the model; in an array it is an input like the others."""
    inputs = tuple(body.input) if isinstance(body.input, list) else tuple(filter(None, (body.input,)))
    return EmbedCall(
        model=body.model,
        keep_alive=body.keep_alive,
        request=EmbeddingRequest(id="", inputs=inputs, truncation=-1 if body.truncate else None),
        shape=VectorShape(dimensions=body.dimensions),
    )


def prepare_embeddings(body: EmbeddingsBody) -> EmbedCall:
    """Return the request in a body."""
    request = EmbeddingRequest(id="", inputs=(body.prompt,) if body.prompt else (), truncation=-1)
    return EmbedCall(model=body.model, keep_alive=body.keep_alive, request=request, shape=VectorShape())


class EmbeddingsEndpoints:
    """Handlers for embeddings."""

    def __init__(self, models: Models) -> None:
        self._models = models

    async def embed(self, call: Call[EmbedCall]) -> JsonReply[Embedded]:
        """Return one embedding per input, in order; an empty list for one empty text."""
        began, asked = call.caller.exchange.began_at, call.prepared
        result, loaded = await self._embed(call)
        whole: Embedded = {
            "model": asked.model,
            "embeddings": HOLE,
            "total_duration": nanoseconds(anyio.current_time() - began),
            "load_duration": nanoseconds(loaded - began),
            "prompt_eval_count": sum(result.tokens),
        }
        return await JsonReply.in_pieces(filled(whole, array(map(asked.shape.floats, result.vectors), 1)))

    async def embeddings(self, call: Call[EmbedCall]) -> JsonReply[OneEmbedding]:
        """Return the embedding of the prompt."""
        result, _loaded = await self._embed(call)
        return JsonReply({"embedding": [number for vector in result.vectors for number in to_floats(vector)]})

    async def _embed(self, call: Call[EmbedCall]) -> tuple[EmbeddingResult, float]:
        """Return the vectors, and the time at which the model was loaded."""
        asked, caller = call.prepared, call.caller
        served = await resolve(self._models, caller, asked.model, Task.EMBED, keep_alive=asked.keep_alive)
        loaded = anyio.current_time()
        asked.shape.check(served.loaded.embedding_size)
        if not asked.request.inputs:
            return EmbeddingResult((), ()), loaded
        return await served.embed(caller, asked.request), loaded


def embeddings_endpoints(models: Models) -> tuple[AnyEndpoint, ...]:
    """Return the endpoints of embeddings."""
    endpoints = EmbeddingsEndpoints(models)
    embed = Endpoint(
        method="POST",
        path="/api/embed",
        id="ollamaEmbed",
        summary="Compute the embeddings of texts, in Ollama's shape.",
        body=EmbedBody,
        prepare=prepare_embed,
        handler=endpoints.embed,
        answer=Embedded,
        refusals=QUEUED,
    )
    embeddings = Endpoint(
        method="POST",
        path="/api/embeddings",
        id="ollamaEmbeddings",
        summary="Compute the embedding of a text, in Ollama's older shape.",
        body=EmbeddingsBody,
        prepare=prepare_embeddings,
        handler=endpoints.embeddings,
        answer=OneEmbedding,
        refusals=QUEUED,
    )
    return embed, embeddings
