"""Fields of llama-server's `/embedding` requests, and a request as its handler needs it."""

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from gateway.apis.answers.vectors import EUCLIDEAN, VectorShape
from gateway.apis.fields.base import Fields, given
from gateway.apis.fields.nested import check_one_given
from gateway.apis.fields.sampling import MAX_INT
from gateway.apis.llama_server.prompts import MixedForm, MixedPrompt, ReadPrompt, mixed, read_mixed_prompts

MAX_INPUTS = 2048
MAX_NORM = 100
"""Largest p of a norm. Further ones differ from the largest number by less than single precision shows."""


InputField = Annotated[
    tuple[ReadPrompt, ...],
    BeforeValidator(
        partial(read_mixed_prompts, limit=MAX_INPUTS),
        json_schema_input_type=MixedForm | Annotated[list[MixedForm], Field(min_length=1, max_length=MAX_INPUTS)],
    ),
]


class NativeEmbeddingBody(Fields):
    """The body of an `/embedding` request. An answer to `content` has llama-server's shape on every path."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [given("input"), given("content")]})

    model: str | None = None
    input: InputField | None = None
    content: InputField | None = None
    embd_normalize: int = Field(
        EUCLIDEAN,
        ge=0,
        le=MAX_NORM,
        description="The p of the norm in which vectors have the length 1; 0: up to 32760.",
    )
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = Field(None, ge=1, le=MAX_INT)
    user: str | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        check_one_given(self, "input", "content")
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeEmbeddingCall:
    """An embedding request."""

    model: str | None
    """Name of the model."""
    inputs: tuple[MixedPrompt, ...]
    """Texts and token ids to embed."""
    native: bool
    """True for an answer in llama-server's shape whatever the path is."""
    shape: VectorShape
    """Shape of the vectors."""


def prepare_native_embedding(body: NativeEmbeddingBody) -> NativeEmbeddingCall:
    """Return the request in a body."""
    return NativeEmbeddingCall(
        model=body.model,
        inputs=mixed(body.input or body.content or ()),
        native=bool(body.content),
        shape=VectorShape(dimensions=body.dimensions, norm=body.embd_normalize, encoding=body.encoding_format),
    )
