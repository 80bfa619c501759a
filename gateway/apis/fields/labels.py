"""Fields by which OpenAI's clients label a request. They have no effect on the text."""

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field

from gateway.apis.fields.base import Fields
from gateway.apis.fields.json_types import wrong_type

MAX_METADATA = 16
MAX_KEY = 64
MAX_LABEL = 512


def _few_strings(metadata: object) -> object:
    """Refuse too many items before each is validated, and wrong ones, whose places are no fields."""
    if not isinstance(metadata, dict):
        return metadata
    if len(metadata) > MAX_METADATA:
        raise ValueError(f"should have at most {MAX_METADATA} items")
    if set(map(type, metadata.values())) - {str}:
        raise wrong_type("should have strings as its values")
    for kind, texts, most in (("keys", metadata, MAX_KEY), ("values", metadata.values(), MAX_LABEL)):
        if any(len(text) > most for text in texts):
            raise ValueError(f"should have {kind} of at most {most} characters")
    return metadata


Metadata: TypeAlias = Annotated[
    dict[Annotated[str, Field(max_length=MAX_KEY)], Annotated[str, Field(max_length=MAX_LABEL)]],
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
