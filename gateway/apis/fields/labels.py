"""Fields by which OpenAI's clients label a request. They have no effect on the text."""

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from gateway.apis.fields.base import Fields

MAX_METADATA = 16


def _few_strings(metadata: object) -> object:
    """Refuse too many items before each is validated, and other values than strings, whose places are no fields."""
    if isinstance(metadata, dict) and len(metadata) > MAX_METADATA:
        raise ValueError(f"should have at most {MAX_METADATA} items")
    if isinstance(metadata, dict) and set(map(type, metadata.values())) - {str}:
        raise PydanticCustomError("string_type", "should have strings as its values")
    return metadata


Metadata: TypeAlias = Annotated[
    dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=512)]],
    BeforeValidator(_few_strings),
    Field(max_length=MAX_METADATA),
]


class LabelFields(Fields):
    """Fields shared by chat and responses."""

    metadata: Metadata = Field(default_factory=dict)
    service_tier: Literal["auto", "default", "flex", "scale", "priority", "fast", "ultrafast"] | None = None
    user: str | None = None
    safety_identifier: str | None = Field(None, max_length=64)
    prompt_cache_key: str | None = None
    prompt_cache_retention: Literal["in_memory", "in-memory", "24h"] | None = None
    prompt_cache_options: dict[str, Any] | None = None
