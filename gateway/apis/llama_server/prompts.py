"""Prompts in the formats of llama-server: texts, token ids, and arrays of both."""

from typing import Annotated, Literal, NotRequired, TypeAlias

from pydantic import Field
from typing_extensions import TypedDict

from gateway.apis.fields.json_types import wrong_type
from gateway.apis.fields.prompts import MAX_CHOICES, MAX_PROMPT_TOKENS
from gateway.apis.fields.sampling import MAX_INT

Part: TypeAlias = str | tuple[int, ...]
"""A text, or token ids."""

MixedPrompt: TypeAlias = tuple[Part, ...]
"""One prompt: its parts in order. Texts and token ids alternate."""


class PromptObject(TypedDict):
    """A text in an object."""

    multimodal_data: NotRequired[Annotated[list[str], Field(max_length=0)] | None]
    """Images and audio, which this server does not take."""


class PromptString(PromptObject):
    """A text in one piece."""

    prompt_string: str
    """The text."""


class TextPart(TypedDict):
    """A part of a text."""

    type: Literal["text"]
    """The type of the part."""
    text: str
    """The text."""


class TextParts(PromptObject):
    """A text in parts."""

    content: Annotated[list[TextPart], Field(min_length=1)]
    """The parts."""


TokenForm: TypeAlias = Annotated[int, Field(ge=0, le=MAX_INT)]
MixedForm: TypeAlias = (
    str | Annotated[list[str | TokenForm], Field(min_length=1, max_length=MAX_PROMPT_TOKENS)] | PromptString | TextParts
)
"""One prompt, as `read_mixed_prompts` accepts it."""
MixedForms: TypeAlias = MixedForm | Annotated[list[MixedForm], Field(min_length=1, max_length=MAX_CHOICES)]
"""One prompt or several."""

_FORMS = "should be a string, token ids, an array of strings and token ids, or an array of such prompts"
_MEDIA = "multimodal_data"


def read_mixed_prompts(value: object, *, limit: int = MAX_CHOICES) -> tuple[MixedPrompt, ...]:
    """Return the prompts in a field.

    An array of strings only is one prompt for each. With token ids among the strings, it is one prompt.

    Args:
        value: a field of a request.
        limit: maximum number of prompts.

    Raises:
        ValueError: for an empty value or another type. pydantic reports it.
    """
    if not isinstance(value, list) or _is_one(value):
        return (_prompt(value),)
    if not value:
        raise ValueError("should not be empty")
    if len(value) > limit:
        raise ValueError(f"should have at most {limit} items")
    return tuple(map(_prompt, value))


def _is_one(value: list[object]) -> bool:
    return any(type(item) is int for item in value)


def _prompt(value: object) -> MixedPrompt:
    if isinstance(value, dict) and value.get(_MEDIA) not in (None, []):
        raise ValueError(f"{_MEDIA}: this server's models take text only")
    match value:
        case str():
            return (value,)
        case {"prompt_string": str(text)}:
            return (text,)
        case {"content": list(parts)} if parts:
            return ("".join(map(_text, parts)),)
        case list() if value:
            return tuple(_parts(value))
    raise wrong_type(_FORMS)


def _text(part: object) -> str:
    match part:
        case {"type": "text", "text": str(text)}:
            return text
    raise ValueError("content: should have parts of text only")


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
