"""Grammars for arguments that a family writes one by one, as text."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from engine import RequestError, strict_schema
from gateway.chat.formats.lark import Rules, either, json_value
from gateway.chat.formats.signature import ANY_TYPE, ArgumentTypes, Shape, signature, type_of
from gateway.chat.formats.values import BARE_KEY
from gateway.chat.tools import Tool

_TEXT_LIMITS = ("pattern", "format", "minLength", "maxLength")
_NOTHING = '""'
_DEFINITIONS = ("$defs", "definitions")

_NAME = "{name}"

Head: TypeAlias = Callable[[str], tuple[str, ...]]
"""Returns the texts before an argument's value tag from its name."""


@dataclass(frozen=True, slots=True)
class ValueTags:
    """Texts around an argument's value."""

    opening: str
    """Text before the value."""
    closing: str
    """Text after the value. It may have the argument's name in it, as `{name}`."""
    types: ArgumentTypes = ANY_TYPE
    """Types that the opening declares; empty if the value may have any."""
    plain: str = ""
    """Pattern of free text between these tags; empty for any text. Other tags take the rest."""

    def named(self, name: str) -> "ValueTags":
        """Return the tags for the argument with this name."""
        return replace(self, closing=self.closing.replace(_NAME, name))


def argument_schemas(tool: Tool, names: re.Pattern[str]) -> dict[str, Mapping[str, Any]]:
    """Return the complete schema of each argument by name. It must be enforced wholly if the tool is strict.

    Raises:
        RequestError: if the tool's `properties` are not an object of schemas, or have a name that is empty or does not
            match `names`, so that the parser would not read it.
    """
    properties = tool.parameters.get("properties", {})
    if not isinstance(properties, Mapping) or not all(isinstance(schema, Mapping) for schema in properties.values()):
        raise RequestError(f"The properties of the tool {tool.name} should be an object of schemas.", param="tools")
    if (odd := next((name for name in properties if not name or not names.fullmatch(name)), None)) is not None:
        message = f"The argument {odd[:64]!r} of the tool {tool.name} cannot be written in this model's call format."
        raise RequestError(message, param="tools")
    shared = {key: tool.parameters[key] for key in _DEFINITIONS if key in tool.parameters}
    complete: Callable[[Mapping[str, Any]], Mapping[str, Any]] = strict_schema if tool.strict else dict
    return {name: complete({**shared, **schema}) for name, schema in properties.items()}


def listed_arguments(rules: Rules, tool: Tool, argument: Callable[[str, Mapping[str, Any]], str], comma: str) -> str:
    """Return the expression for the tool's arguments with commas between them, and names without quotes.

    The required arguments come first, then any of the others, both in the order of the schema.

    Args:
        rules: the grammar.
        tool: the tool.
        argument: returns the expression for an argument of this name and schema.
        comma: the text between two arguments.
    """
    needed = frozenset(tool.parameters.get("required", ()))
    required: list[str] = []
    optional: list[str] = []
    for name, schema in argument_schemas(tool, BARE_KEY).items():
        (required if name in needed else optional).append(argument(name, schema))
    firsts, rest = [], ""
    for expression in reversed(optional):
        firsts.append(f"{expression} {rest}")
        rest = rules.rule(f"({rules.text(comma)} {expression})? {rest}")
    if required:
        return f"{f' {rules.text(comma)} '.join(required)} {rest}"
    return f"{either(firsts)}?" if firsts else ""


def text_arguments(
    rules: Rules, tool: Tool, names: re.Pattern[str], head: Head, values: Sequence[ValueTags], line: str = ""
) -> str:
    """Return the expression for the tool's arguments in the order of its schema, with optional ones optional.

    Args:
        rules: the grammar.
        tool: the tool.
        names: the names that the parser reads.
        head: returns the texts before the tags of an argument's value.
        values: the tags around values, of which a value has one whose types are among its own.
        line: the line break at both ends of a value. Free text ends with or without it, as the model likes.

    Raises:
        RequestError: if a strict schema limits text in a way that cannot be enforced without quotes; and as in
            `argument_schemas`.
    """
    types_of = signature(tool).types_of
    required = frozenset(tool.parameters.get("required", ()))
    written = []
    for name, schema in argument_schemas(tool, names).items():
        types = types_of(name)
        fitting = [tags for tags in values if not types or not tags.types or types & tags.types] or values[-1:]
        forms = [
            f"{rules.text(*head(name), tags.opening + line)} {value}"
            for tags in fitting
            for value in _values(rules, tool, name, schema, types, tags.named(name), line)
        ]
        argument = either(forms)
        written.append(argument if name in required else f"{argument}?")
    return " ".join(written)


def _values(
    rules: Rules,
    tool: Tool,
    name: str,
    schema: Mapping[str, Any],
    types: ArgumentTypes,
    tags: ValueTags,
    line: str,
) -> Iterator[str]:
    """Yield the expression for a value and its closing, unless other tags take it. As text, it includes all JSON."""
    if _allow_text(types) and _allow_text(tags.types):
        if not tags.plain or tool.grammar is None:
            yield text_value(rules, tool, name, schema, tags, line)
    else:
        yield f"{json_value(schema)} {rules.text(line, tags.closing)}"


def text_value(rules: Rules, tool: Tool, name: str, schema: Mapping[str, Any], tags: ValueTags, line: str = "") -> str:
    """Return the expression for a text without quotes and the closing of its tags.

    Raises:
        RequestError: as in `text_arguments`.
    """
    closing = tags.closing
    if tool.grammar is not None:
        ends = [rules.text(line, closing), rules.text(closing)] if line else [rules.text(closing)]
        return f"{rules.matching(tool.grammar, closing)} {either(ends)}"
    shape = Shape(schema, schema)
    if texts := [_text(value) for value in shape.values if not tags.types or type_of(value) in tags.types]:
        return f"{either([rules.text(text) or _NOTHING for text in texts])} {rules.text(line, closing)}"
    if tool.strict:
        _check_unlimited(tool, name, shape)
    return f"/{tags.plain}/ {rules.text(closing)}" if tags.plain else rules.until(closing)


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _check_unlimited(tool: Tool, name: str, shape: Shape) -> None:
    """Check that no schema of a text limits it. Raises `RequestError`."""
    texts = (part for part in shape.parts() if _allow_text(Shape(part, part).types))
    if limit := next((limit for part in texts for limit in _TEXT_LIMITS if limit in part), None):
        message = f"{limit} of {name} in the strict tool {tool.name} cannot be enforced in this model's call format."
        raise RequestError(message, param="tools")


def _allow_text(types: ArgumentTypes) -> bool:
    return not types or "string" in types
