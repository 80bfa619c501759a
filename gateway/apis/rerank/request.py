"""Fields of re-ranking requests."""

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from gateway.apis.fields.base import Fields, given
from gateway.apis.fields.nested import Nested, read_nested, refusal
from gateway.apis.fields.sampling import MAX_INT
from gateway.apis.fields.truncation import TruncationFields

MAX_DOCUMENTS = 2048
_COHERE_DOCUMENT_TOKENS = 4096


class TextDocument(Nested):
    """A document as an object."""

    text: str


def _documents(value: object) -> object:
    """Return the texts of documents. Other values than objects are left to pydantic."""
    if not isinstance(value, list):
        return value
    return [
        read_nested(TextDocument, one, f"documents[{at}]").text if isinstance(one, dict) else one
        for at, one in enumerate(value)
    ]


_Texts = Annotated[list[str], Field(min_length=1, max_length=MAX_DOCUMENTS)]
_Documents = Annotated[
    _Texts,
    BeforeValidator(
        _documents,
        json_schema_input_type=Annotated[list[str | TextDocument], Field(min_length=1, max_length=MAX_DOCUMENTS)],
    ),
]


class RerankBody(TruncationFields):
    """The body of a request in the shape of Jina and llama-server, or with `texts` of TEI."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [given("documents"), given("texts")]})

    model: str | None = None
    query: str
    documents: _Documents | None = None
    top_n: int | None = Field(None, ge=1, le=MAX_INT)
    return_documents: bool = False
    max_tokens_per_doc: int | None = Field(None, ge=1, le=MAX_INT)
    texts: _Texts | None = None
    return_text: bool = False
    truncate: bool = False
    truncation_direction: Literal["Right", "right"] = "Right"
    raw_scores: bool = False

    @model_validator(mode="after")
    def _either(self) -> Self:
        if (self.documents is None) == (self.texts is None):
            raise refusal("documents", "give either documents or texts")
        return self


class LlamaRerankBody(RerankBody):
    """The body of a request to llama-server, whose scores are those of the model."""

    raw_scores: bool = True


class CohereRerankBody(Fields):
    """The body of a request in the shape of Cohere. Its documents are cut instead of refused."""

    model: str | None = None
    query: str
    documents: _Documents
    top_n: int | None = Field(None, ge=1, le=MAX_INT)
    max_tokens_per_doc: int = Field(_COHERE_DOCUMENT_TOKENS, ge=1, le=MAX_INT)
    priority: int | None = Field(None, ge=0, le=999)
