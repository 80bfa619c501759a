"""Answers of `/v1/embeddings`."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from engine import EmbeddingResult
from gateway.apis.answers.pieces import HOLE, array, filled
from gateway.apis.answers.shapes import Count, JsonObject
from gateway.apis.answers.vectors import VectorShape


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


def embeddings(model: str, shape: VectorShape, result: EmbeddingResult) -> Iterator[bytes]:
    """Return the JSON of the whole answer in pieces, one for each vector, because there may be thousands."""
    tokens = sum(result.tokens)
    whole: Embeddings = {
        "object": "list",
        "data": HOLE,
        "model": model,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }
    return filled(whole, array((_embedding(at, shape.encode(vector)) for at, vector in enumerate(result.vectors)), 1))


def _embedding(index: int, vector: list[float] | str) -> Embedding:
    return {"object": "embedding", "index": index, "embedding": vector}
