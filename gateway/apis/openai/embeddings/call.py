"""An embedding request as its handler needs it, without the body that it came in."""

from dataclasses import dataclass
from typing import Literal

from engine import EmbeddingRequest
from gateway.apis.answers.vectors import shorten, to_base64, to_floats
from gateway.apis.openai.embeddings.request import EmbeddingBody


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingCall:
    """An embedding request."""

    model: str | None
    """Name of the model."""
    request: EmbeddingRequest
    """The engine's request, without an id."""
    dimensions: int | None
    """Size of the vectors; None for that of the model."""
    encoding: Literal["float", "base64"]
    """Encoding of the vectors."""

    def encode(self, vector: bytes) -> list[float] | str:
        """Return a vector of the engine in the requested size and encoding."""
        vector = self.cut(vector)
        return to_base64(vector) if self.encoding == "base64" else to_floats(vector)

    def cut(self, vector: bytes) -> bytes:
        """Return a vector of the engine in the requested size."""
        return vector if self.dimensions is None else shorten(vector, self.dimensions)


def prepare_embedding(body: EmbeddingBody) -> EmbeddingCall:
    """Return the request in a body."""
    return EmbeddingCall(
        model=body.model,
        request=EmbeddingRequest(id="", inputs=body.input, truncation=body.truncate_prompt_tokens),
        dimensions=body.dimensions,
        encoding=body.encoding_format,
    )
