"""Answers of `/v1/embeddings`."""

from typing import Annotated, Literal

import anyio.lowlevel
from pydantic import Field

from engine import EmbeddingResult
from gateway.apis.answers.shapes import Count, JsonObject
from gateway.apis.openai.embeddings.call import EmbeddingCall


class Embedding(JsonObject):
    """An embedding vector. As base64, its numbers are little-endian float32."""

    object: Literal["embedding"]
    index: Count
    embedding: list[float] | Annotated[str, Field(json_schema_extra={"contentEncoding": "base64"})]


class EmbeddingUsage(JsonObject):
    """Token counts of the inputs."""

    prompt_tokens: Count
    total_tokens: Count


class Embeddings(JsonObject):
    """One embedding per input, in order."""

    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: EmbeddingUsage


async def embeddings(model: str, asked: EmbeddingCall, result: EmbeddingResult) -> Embeddings:
    """Return the whole answer. Yields to other tasks after each vector, because there may be thousands."""
    data: list[Embedding] = []
    for index, vector in enumerate(result.vectors):
        data.append({"object": "embedding", "index": index, "embedding": asked.encode(vector)})
        await anyio.lowlevel.checkpoint()
    tokens = sum(result.tokens)
    return {
        "object": "list",
        "data": data,
        "model": model,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }
