"""Prompts as OpenAI's completion clients write them."""

from typing import TypeAlias

from gateway.dialects.sampling import MAX_INT

Prompt: TypeAlias = str | tuple[int, ...]
"""A text, or token ids."""

_FORMS = "should be a string, an array of strings, an array of token ids or an array of such arrays"


def read_prompts(value: object) -> tuple[Prompt, ...]:
    """The prompts in a string, a list of strings, a list of token ids or a list of such lists.

    Raises `ValueError`, which pydantic reports, for anything else and for whatever is empty.
    """
    if isinstance(value, list) and not any(isinstance(item, str | list) for item in value):
        return (_tokens(value),)
    if isinstance(value, str | list):
        return tuple(_prompt(item) for item in ([value] if isinstance(value, str) else value))
    raise ValueError(_FORMS)


def _prompt(value: object) -> Prompt:
    if isinstance(value, list):
        return _tokens(value)
    if not isinstance(value, str):
        raise ValueError(_FORMS)  # noqa: TRY004 (pydantic reports ValueError only)
    if not value:
        raise ValueError("should not be empty")
    return value


def _tokens(value: list[object]) -> tuple[int, ...]:
    if not value:
        raise ValueError("should not be empty")
    tokens: list[int] = []
    for token in value:
        if type(token) is not int:
            raise ValueError(_FORMS)
        if not 0 <= token <= MAX_INT:
            raise ValueError(f"has the token id {token}, which no model has")
        tokens.append(token)
    return tuple(tokens)
