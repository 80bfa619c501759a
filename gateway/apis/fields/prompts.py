"""Prompts in the formats of OpenAI's completions."""

from typing import Annotated, TypeAlias, cast

from pydantic import Field, ValidationInfo

from engine import Prompt as EnginePrompt
from engine import all_plain
from gateway.apis.fields.json_types import wrong_type
from gateway.apis.fields.sampling import MAX_INT

Prompt: TypeAlias = str | tuple[int, ...]
"""A text, or token ids."""

MAX_CHOICES = 128
"""Maximum of the prompts times `n` in one request."""

MAX_PROMPT_TOKENS = 2**18
"""Maximum of token ids in all prompts of a request: far above the usual context of a slot."""

PromptForm: TypeAlias = (
    Annotated[str, Field(min_length=1)]
    | Annotated[list[Annotated[int, Field(ge=0, le=MAX_INT)]], Field(min_length=1, max_length=MAX_PROMPT_TOKENS)]
)
"""One prompt, as `read_prompts` accepts it."""

PromptForms: TypeAlias = PromptForm | Annotated[list[PromptForm], Field(min_length=1, max_length=MAX_CHOICES)]
"""One prompt or several."""

_FORMS = "should be a string, an array of strings, an array of token ids or an array of such arrays"


ParseSpecial: TypeAlias = Annotated[
    bool,
    Field(description="Names of control tokens in a text become these tokens. The text around a gap is always plain."),
]
"""The request field `parse_special` of prompts."""


def engine_prompt(prompt: Prompt, *, parse_special: bool) -> EnginePrompt:
    """Return a prompt for the engine, as a plain text unless names of control tokens are parsed."""
    return all_plain(prompt) if isinstance(prompt, str) and not parse_special else prompt


def read_prompts(value: object, *, limit: int = MAX_CHOICES) -> tuple[Prompt, ...]:
    """Return the prompts in a string, a list of strings, a list of token ids or a list of such lists.

    Args:
        value: a field of a request.
        limit: maximum number of prompts.

    Raises:
        ValueError: for an empty value or another type. pydantic reports it.
    """
    if isinstance(value, str):
        return (_prompt(value),)
    if not isinstance(value, list):
        raise wrong_type(_FORMS)
    if not value or not isinstance(value[0], str | list):
        return (_tokens(value),)
    if len(value) > limit:
        raise ValueError(f"should have at most {limit} items")
    _check_tokens(sum(len(prompt) for prompt in value if isinstance(prompt, list)))
    return tuple(map(_prompt, value))


def bounded_choices(choices: int, info: ValidationInfo) -> int:
    """Return the choices for each prompt in the field `prompt`. Raises `ValueError` if all together are too many."""
    prompts = info.data.get("prompt", ())
    if choices * (1 if isinstance(prompts, str) else len(prompts)) > MAX_CHOICES:
        raise ValueError(f"times the number of prompts should be at most {MAX_CHOICES}")
    return choices


def _prompt(value: object) -> Prompt:
    if isinstance(value, list):
        return _tokens(value)
    if not isinstance(value, str):
        raise wrong_type(_FORMS)
    if not value:
        raise ValueError("should not be empty")
    return value


def _tokens(value: list[object]) -> tuple[int, ...]:
    if not value:
        raise ValueError("should not be empty")
    _check_tokens(len(value))
    if set(map(type, value)) != {int}:  # a boolean is no id
        raise wrong_type(_FORMS)
    tokens = cast("tuple[int, ...]", tuple(value))
    for token in (min(tokens), max(tokens)):
        if not 0 <= token <= MAX_INT:
            raise ValueError(f"has the token id {token}, which no model has")
    return tokens


def _check_tokens(count: int) -> None:
    if count > MAX_PROMPT_TOKENS:
        raise ValueError(f"should have at most {MAX_PROMPT_TOKENS} token ids in total")
