"""Fields of conversation requests, and their preparation."""

from dataclasses import dataclass
from typing import Annotated, TypeAlias

from pydantic import BeforeValidator, Field, model_validator

from gateway.apis.fields.base import Fields
from gateway.apis.fields.json_types import array_of
from gateway.apis.fields.labels import Metadata
from gateway.apis.openai.responses.input import InputItem, read_items
from gateway.apis.openai.responses.references import EncodedInput, encode_input

MAX_ADDED = 20
"""Maximum of items in one request."""
PLACE = "items"
"""Name of the field with the items."""


def _read(value: object) -> tuple[InputItem, ...]:
    return read_items(array_of("items", value, most=MAX_ADDED), PLACE)


Items: TypeAlias = Annotated[
    tuple[InputItem, ...],
    BeforeValidator(_read, json_schema_input_type=Annotated[list[InputItem], Field(max_length=MAX_ADDED)]),
]


class ConversationBody(Fields):
    """The body of a request for a new conversation."""

    metadata: Metadata = Field(default_factory=dict)
    items: Items = ()


class ItemsBody(Fields):
    """The body of a request that adds items to a conversation."""

    items: Items


class MetadataBody(Fields):
    """The body of a request for other metadata. `null` removes all."""

    metadata: Metadata | None

    @model_validator(mode="before")
    @classmethod
    def _without_null(cls, body: object) -> object:
        return {**body, "metadata": {}} if isinstance(body, dict) and body.get("metadata", ...) is None else body


@dataclass(frozen=True, slots=True, kw_only=True)
class NewConversation:
    """A conversation to create."""

    metadata: dict[str, str]
    """Its metadata."""
    items: EncodedInput
    """Its items, and references to stored ones."""


def prepare_conversation(body: ConversationBody) -> NewConversation:
    """Return the conversation in a body. Raises `RequestError` if it refers to one item twice."""
    return NewConversation(metadata=body.metadata, items=encode_input(body.items, PLACE))


def prepare_items(body: ItemsBody) -> EncodedInput:
    """Return the items in a body, and references to stored ones. Raises `RequestError` as above."""
    return encode_input(body.items, PLACE)


def prepare_metadata(body: MetadataBody) -> dict[str, str]:
    """Return the metadata in a body."""
    return body.metadata or {}
