"""Prompts in the formats of llama-server: texts, token ids, and arrays of both."""

from collections.abc import Iterable
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, ValidationInfo, field_validator

from gateway.apis.fields.json_types import wrong_type
from gateway.apis.fields.nested import Nested, read_nested
from gateway.apis.fields.parts import MAX_PARTS
from gateway.apis.fields.prompts import MAX_CHOICES, MAX_PROMPT_TOKENS
from gateway.apis.fields.sampling import MAX_INT

Part: TypeAlias = str | tuple[int, ...]
"""A text, or token ids."""

MixedPrompt: TypeAlias = tuple[Part, ...]
"""One prompt: its parts in order. Texts and token ids alternate."""


class PromptObject(Nested):
    """A text in an object."""

    multimodal_data: list[Any] = Field(default_factory=list, json_schema_extra={"maxItems": 0})

    @field_validator("multimodal_data")
    @classmethod
    def _text_only(cls, media: list[Any]) -> list[Any]:
        if media:
            raise ValueError("this server's models take text only")
        return media


class PromptString(PromptObject):
    """A text in one piece."""

    prompt_string: str

    @property
    def text(self) -> str:
        """The text."""
        return self.prompt_string


class PromptPart(Nested):
    """A part of a text."""

    type: Literal["text"]
    text: str


class PromptParts(PromptObject):
    """A text in parts."""

    content: list[PromptPart] = Field(min_length=1, max_length=MAX_PARTS, fail_fast=True)

    @property
    def text(self) -> str:
        """The text."""
        return "".join(part.text for part in self.content)


ReadPrompt: TypeAlias = MixedPrompt | PromptString | PromptParts
"""One prompt of a body. Objects stay what they are, so that their unknown fields can be reported."""

TokenForm: TypeAlias = Annotated[int, Field(ge=0, le=MAX_INT)]
MixedForm: TypeAlias = (
    str
    | Annotated[list[str | TokenForm], Field(min_length=1, max_length=MAX_PROMPT_TOKENS)]
    | PromptString
    | PromptParts
)
"""One prompt, as `read_mixed_prompts` accepts it."""
MixedForms: TypeAlias = MixedForm | Annotated[list[MixedForm], Field(min_length=1, max_length=MAX_CHOICES)]
"""One prompt or several."""

_FORMS = "should be a string, token ids, an array of strings and token ids, or an array of such prompts"


def read_mixed_prompts(value: object, info: ValidationInfo, *, limit: int = MAX_CHOICES) -> tuple[ReadPrompt, ...]:
    """Return the prompts in a field.

    An array of strings only is one prompt for each. With token ids among the strings, it is one prompt.

    Args:
        value: a field of a request.
        info: has the name of the field.
        limit: maximum number of prompts.

    Raises:
        ValueError: for an empty value or another type. pydantic reports it.
        RequestError: for an invalid object, with the place of the fault.
    """
    place = str(info.field_name)
    if not isinstance(value, list) or _is_one(value):
        return (_prompt(value, place),)
    if not value:
        raise ValueError("should not be empty")
    if len(value) > limit:
        raise ValueError(f"should have at most {limit} items")
    return tuple(_prompt(item, f"{place}[{at}]") for at, item in enumerate(value))


def mixed(prompts: Iterable[ReadPrompt]) -> tuple[MixedPrompt, ...]:
    """Return the prompts of a body as parts."""
    return tuple(prompt if isinstance(prompt, tuple) else (prompt.text,) for prompt in prompts)


def _is_one(value: list[object]) -> bool:
    return any(type(item) is int for item in value)


def _prompt(value: object, place: str) -> ReadPrompt:
    match value:
        case str():
            return (value,)
        case {"prompt_string": _}:
            return read_nested(PromptString, value, place)
        case {"content": _}:
            return read_nested(PromptParts, value, place)
        case list() if value:
            return tuple(_parts(value))
    raise wrong_type(_FORMS)


def _parts(value: list[object]) -> list[Part]:
    """Return strings, and the token ids between them joined."""
    if len(value) > MAX_PROMPT_TOKENS:
        raise ValueError(f"should have at most {MAX_PROMPT_TOKENS} token ids in total")
    parts: list[Part] = []
    run: list[int] = []
    for item in value:
        if isinstance(item, str):
            parts += [tuple(run), item] if run else [item]
            run = []
        elif type(item) is int and 0 <= item <= MAX_INT:  # a boolean is no id
            run.append(item)
        else:
            raise wrong_type(_FORMS)
    return [*parts, tuple(run)] if run else parts
