"""Convert arguments that a family writes one by one, as text between tags, into a JSON object."""

from collections.abc import Mapping
from typing import Any

from gateway.chat.formats.output import Output
from gateway.chat.formats.source import Reading, Source, Truncated
from gateway.chat.formats.values import as_json, escaped, quoted
from gateway.chat.tools import Tool

_MAX_REFERENCES = 16


class ArgumentsWriter:
    """Emits a call and its arguments one after the other, as a JSON object."""

    def __init__(self, source: Source, out: Output, tool: Tool) -> None:
        """Begin the call, and commit to the text read so far."""
        source.commit()
        out.call(tool.name)
        out.arguments("{")
        self._out = out
        self._separator = ""

    def key(self, name: str) -> None:
        """Emit the name of the next argument."""
        self._out.arguments(f"{self._separator}{quoted(name)}: ")
        self._separator = ", "

    def end(self) -> None:
        """Close the object of arguments."""
        self._out.arguments("}")


def read_text(source: Source, out: Output, schema: "ParameterSchema", closing: tuple[str, ...]) -> Reading[None]:
    """Read an argument up to one of `closing`, and emit it as a JSON value of the type in its schema.

    Strings are streamed. Other values wait for their end, and become strings if they do not have that type.
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
    """Schema of one argument of a tool."""

    types: frozenset[str]
    """JSON schema's names of the allowed types; empty if any type is allowed."""

    def __init__(self, tool: Tool, name: str) -> None:
        self._root = tool.parameters
        properties = tool.parameters.get("properties")
        schema = properties.get(name) if isinstance(properties, Mapping) else None
        self.types = self._types(schema, _MAX_REFERENCES)

    def converted(self, text: str) -> str:
        """Return `text` as a JSON value of one of the types if possible, else as a JSON string."""
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
    """Return the target of a reference inside the schema; None for any other reference."""
    found: object = root if reference.startswith("#/") else None
    for part in reference.split("/")[1:]:
        found = found.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(found, Mapping) else None
    return found
