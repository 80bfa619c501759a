"""Content as a text or an array of parts. Chat messages and response items have different names for the part types."""

from collections.abc import Callable
from typing import Any

from pydantic import Field, model_validator

from gateway.apis.fields.json_types import wrong_type
from gateway.apis.fields.nested import Nested, missing

_MEDIA = {
    "image_url": "images",
    "input_image": "images",
    "input_audio": "audio",
    "audio_url": "audio",
    "input_video": "video",
    "video_url": "video",
    "computer_screenshot": "images",
    "file": "files",
    "input_file": "files",
}
"""Unsupported media that clients are likely to send, by part type."""

ADDED_BY_CLIENTS = "Has no effect. OpenAI's clients add it to answers, which become input again."


class TextPart(Nested):
    """A text, or a refusal by the model with the type `refusal`."""

    type: str
    text: str | None = None
    refusal: str | None = None
    prompt_cache_breakpoint: dict[str, Any] | None = Field(None, description="Has no effect: all prompts are cached.")

    @model_validator(mode="before")
    @classmethod
    def _is_text(cls, part: object) -> object:
        kind = part.get("type") if isinstance(part, dict) else None
        if isinstance(kind, str) and kind in _MEDIA:
            raise ValueError(f"this server's models take text only, no {_MEDIA[kind]}")
        return part

    @model_validator(mode="after")
    def _has_its_text(self) -> "TextPart":
        wanted = "refusal" if self.type == "refusal" else "text"
        if getattr(self, wanted) is None:
            raise missing(wanted, "Field required")
        return self

    @property
    def words(self) -> str:
        """Text of the part, whichever type it has."""
        return (self.refusal if self.type == "refusal" else self.text) or ""


MAX_MESSAGES = 2**13
"""Maximum of messages in one request: far above the usual context of a slot. It bounds the cost of validation."""
MAX_PARTS = 2**14
"""Maximum of parts in one request, with the calls in its messages: far above what agents send."""


def as_parts(kind: str) -> Callable[[object], object]:
    """Return a validator that reads a text as an array of one part of the type `kind`."""

    def read(value: object) -> object:
        if isinstance(value, str):
            return [{"type": kind, "text": value}]
        if not isinstance(value, list):
            raise wrong_type("should be a string or an array of parts")
        if len(value) > MAX_PARTS:
            raise ValueError(f"should have at most {MAX_PARTS} parts")
        return value

    return read
