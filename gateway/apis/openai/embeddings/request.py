"""Fields of OpenAI's embedding requests."""

from functools import partial
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from gateway.apis.fields.prompts import Prompt, PromptForm, read_prompts
from gateway.apis.fields.sampling import MAX_INT
from gateway.apis.fields.truncation import TruncationFields

MAX_INPUTS = 2048


class EmbeddingBody(TruncationFields):
    """The body of an embedding request."""

    model: str | None = None
    input: Annotated[
        tuple[Prompt, ...],
        BeforeValidator(
            partial(read_prompts, limit=MAX_INPUTS),
            json_schema_input_type=PromptForm | Annotated[list[PromptForm], Field(min_length=1, max_length=MAX_INPUTS)],
        ),
    ]
    dimensions: int | None = Field(None, ge=1, le=MAX_INT)
    encoding_format: Literal["float", "base64"] = "float"
    user: str | None = None
