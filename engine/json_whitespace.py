"""Whitespace between the tokens of generated JSON."""

from collections.abc import Mapping
from typing import Any

JSON_WHITESPACE = r" |\n[ \t]{0,20}"
"""One blank, or a line break and an indentation, as in llama.cpp's grammars. Longer runs cost tokens and say nothing,
and without a bound a weak model generates them up to its limit."""

_OPTIONS = "x-guidance"
_WHITESPACE_OPTIONS = {"whitespace_pattern", "whitespace_flexible"}


def with_whitespace(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a JSON schema for llguidance that bounds whitespace, unless its own `x-guidance` has a rule for it.

    An `x-guidance` that is not an object is returned unchanged. The compiler reports it.
    """
    options = schema.get(_OPTIONS, {})
    if not isinstance(options, Mapping) or options.keys() & _WHITESPACE_OPTIONS:
        return dict(schema)
    return {**schema, _OPTIONS: {**options, "whitespace_pattern": JSON_WHITESPACE}}
