"""The fields of OpenAI's embedding requests, and vectors as its clients want them."""

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
    """The body of a request."""

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
        """What the engine is asked, under this id."""
        return EmbeddingRequest(id=request_id, inputs=self.input)

    def encode(self, vector: bytes) -> list[float] | str:
        """An embedding as the engine gives it, in the size and the form that is asked for."""
        if self.dimensions is not None:
            vector = shorten(vector, self.dimensions)
        if self.encoding_format == "base64":
            return base64.b64encode(vector).decode()
        return list(_numbers(vector))


def shorten(vector: bytes, dimensions: int) -> bytes:
    """The first numbers of a float32 vector, scaled to length 1 again.

    So are the vectors of models trained for it (Matryoshka representation learning) made shorter. One whose first
    numbers are all zero stays so.
    """
    numbers = _numbers(vector[: dimensions * _FLOAT_BYTES])
    length = math.hypot(*numbers) or 1.0
    return struct.pack(f"<{len(numbers)}f", *(number / length for number in numbers))


def _numbers(vector: bytes) -> tuple[float, ...]:
    return struct.unpack(f"<{len(vector) // _FLOAT_BYTES}f", vector)
