"""An embedding request as its handler needs it, without the body that it came in."""

from dataclasses import dataclass

from engine import EmbeddingRequest
from gateway.apis.answers.vectors import VectorShape
from gateway.apis.openai.embeddings.request import EmbeddingBody


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingCall:
    """An embedding request."""

    model: str | None
    """Name of the model."""
    request: EmbeddingRequest
    """The engine's request, without an id."""
    shape: VectorShape
    """Shape of the vectors."""


def prepare_embedding(body: EmbeddingBody) -> EmbeddingCall:
    """Return the request in a body."""
    return EmbeddingCall(
        model=body.model,
        request=EmbeddingRequest(id="", inputs=body.input, truncation=body.truncate_prompt_tokens),
        shape=VectorShape(dimensions=body.dimensions, encoding=body.encoding_format),
    )
