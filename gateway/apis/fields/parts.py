"""Parts of what somebody says. Chat messages and the items of responses name their types differently."""

from collections.abc import Mapping
from typing import ClassVar

from pydantic import model_validator

from gateway.apis.fields.nested import Nested


class TextPart(Nested):
    """A text, or what the model said instead of an answer: of the type `refusal`.

    Attributes:
        unsupported: the reason for which types that clients may well send are refused, by name.
    """

    unsupported: ClassVar[Mapping[str, str]]

    type: str
    text: str | None = None
    refusal: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _is_text(cls, part: object) -> object:
        kind = part.get("type") if isinstance(part, dict) else None
        if isinstance(kind, str) and kind in cls.unsupported:
            raise ValueError(cls.unsupported[kind])
        return part

    @model_validator(mode="after")
    def _has_its_text(self) -> "TextPart":
        wanted = "refusal" if self.type == "refusal" else "text"
        if getattr(self, wanted) is None:
            raise ValueError(f"should have a {wanted}")
        return self
