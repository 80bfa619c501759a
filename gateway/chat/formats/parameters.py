"""Arguments that a family writes one by one, as text between tags, told as a JSON object."""

from collections.abc import Mapping
from typing import Any

from gateway.chat.formats.output import Output
from gateway.chat.formats.source import Reading, Source, Truncated
from gateway.chat.formats.values import as_json, escaped, quoted
from gateway.chat.tools import Tool

_MAX_REFERENCES = 16


class ArgumentsWriter:
    """Tells a call and its arguments one after the other."""

    def __init__(self, source: Source, out: Output, tool: Tool) -> None:
        """The call begins: what was read of it so far is certain."""
        source.commit()
        out.call(tool.name)
        out.arguments("{")
        self._out = out
        self._separator = ""

    def key(self, name: str) -> None:
        """The next argument's name."""
        self._out.arguments(f"{self._separator}{quoted(name)}: ")
        self._separator = ", "

    def end(self) -> None:
        """There are no further arguments."""
        self._out.arguments("}")


def read_text(source: Source, out: Output, schema: "ParameterSchema", closing: tuple[str, ...]) -> Reading[None]:
    """Reads an argument up to one of `closing`, and tells it as the JSON value that its schema asks for.

    Strings are told as they come. Anything else waits for its end, and is a string where it is no such value.
    """
    if schema.types == {"string"}:
        out.arguments('"')
        if (yield from source.until(closing, lambda text: out.arguments(escaped(text)))) is None:
            raise Truncated
        out.arguments('"')
        return
    parts: list[str] = []
    closed = yield from source.until(closing, parts.append)
    out.arguments(schema.converted("".join(parts)))
    if closed is None:
        raise Truncated


class ParameterSchema:
    """What a tool's schema says of one argument.

    Attributes:
        types: JSON schema's names of the types it may have; empty if any.
    """

    def __init__(self, tool: Tool, name: str) -> None:
        self._root = tool.parameters
        properties = tool.parameters.get("properties")
        schema = properties.get(name) if isinstance(properties, Mapping) else None
        self.types = self._types(schema, _MAX_REFERENCES)

    def converted(self, text: str) -> str:
        """`text` as a JSON value of one of the types if it can be read so, else as a JSON string."""
        if "string" in self.types:
            null = "null" in self.types and text.strip() in ("null", "None")
            return "null" if null else quoted(text)
        return as_json(text) or quoted(text)

    def _types(self, schema: object, references: int) -> frozenset[str]:
        if not isinstance(schema, Mapping) or references == 0:
            return frozenset()
        named = schema.get("type")
        if isinstance(named, str):
            return frozenset({named})
        if isinstance(named, list):
            return frozenset(map(str, named))
        if isinstance(reference := schema.get("$ref"), str):
            return self._types(_resolved(self._root, reference), references - 1)
        for values in (schema.get("enum"), [schema["const"]] if "const" in schema else None):
            if isinstance(values, list):
                return frozenset({"string"} if all(isinstance(value, str) for value in values) else ())
        return self._union(schema, references)

    def _union(self, schema: Mapping[str, Any], references: int) -> frozenset[str]:
        choices = schema.get("anyOf") or schema.get("oneOf")
        if not isinstance(choices, list):
            return frozenset()
        types = [self._types(choice, references - 1) for choice in choices]
        return frozenset().union(*types) if all(types) else frozenset()


def _resolved(root: Mapping[str, Any], reference: str) -> object:
    """What a reference inside the schema means; None for any other."""
    found: object = root if reference.startswith("#/") else None
    for part in reference.split("/")[1:]:
        found = found.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(found, Mapping) else None
    return found
