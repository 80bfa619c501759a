"""Fields of OpenAI's embedding requests, and the encoding of vectors."""

import base64
import math
import struct
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from engine import EmbeddingRequest
from gateway.apis.fields.base import Fields
from gateway.apis.fields.prompts import Prompt, PromptForm, read_prompts
from gateway.apis.fields.sampling import MAX_INT

MAX_INPUTS = 2048
_FLOAT_BYTES = 4


def _inputs(value: object) -> tuple[Prompt, ...]:
    return read_prompts(value, limit=MAX_INPUTS)


class EmbeddingBody(Fields):
    """The body of an embedding request."""

    model: str | None = None
    input: Annotated[
        tuple[Prompt, ...],
        BeforeValidator(
            _inputs,
            json_schema_input_type=PromptForm | Annotated[list[PromptForm], Field(min_length=1, max_length=MAX_INPUTS)],
        ),
    ]
    dimensions: int | None = Field(None, ge=1, le=MAX_INT)
    encoding_format: Literal["float", "base64"] = "float"
    user: str | None = None

    def request(self, request_id: str) -> EmbeddingRequest:
        """Return the engine's request with this id."""
        return EmbeddingRequest(id=request_id, inputs=self.input)

    def encode(self, vector: bytes) -> list[float] | str:
        """Return a vector of the engine in the requested size and format."""
        if self.dimensions is not None:
            vector = shorten(vector, self.dimensions)
        if self.encoding_format == "base64":
            return base64.b64encode(vector).decode()
        return list(_numbers(vector))


def shorten(vector: bytes, dimensions: int) -> bytes:
    """Return the first numbers of a float32 vector, normalized to length 1 again.

    This is the method for models with Matryoshka representation learning. If the first numbers are all zero, the result
    is zero.
    """
    numbers = _numbers(vector[: dimensions * _FLOAT_BYTES])
    length = math.hypot(*numbers) or 1.0
    return struct.pack(f"<{len(numbers)}f", *(number / length for number in numbers))


def _numbers(vector: bytes) -> tuple[float, ...]:
    return struct.unpack(f"<{len(vector) // _FLOAT_BYTES}f", vector)
