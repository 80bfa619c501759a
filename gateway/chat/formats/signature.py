"""Names and types of a tool's arguments: all that parsers need of its schema."""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

from gateway.chat.tools import Tool

_MAX_REFERENCES = 16
_CHOICES = ("allOf", "anyOf", "oneOf")
_COMBINING = frozenset({"$ref", *_CHOICES})
_TYPE_NAMES = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}

ArgumentTypes: TypeAlias = frozenset[str]
"""JSON schema's names of the types that an argument may have; empty if any type is allowed."""

ANY_TYPE: ArgumentTypes = frozenset()


@dataclass(frozen=True, slots=True)
class Signature:
    """A tool as parsers see it."""

    name: str
    """Name of the function in calls."""
    types: dict[str, str] = field(default_factory=dict)
    """Types of the arguments by name, with blanks between them, without those of any type. There may be thousands."""

    parameters: Mapping[str, Any] = field(default_factory=dict)
    """Schema of the arguments; empty for families that write no nested values between tags."""

    def types_of(self, argument: str) -> ArgumentTypes:
        """Return the types of an argument of any name."""
        return frozenset(self.types.get(argument, "").split())


def signature(tool: Tool, *, nested: bool = False) -> Signature:
    """Return the signature of a tool. An argument whose schema cannot be understood may have any type.

    Args:
        tool: the tool.
        nested: True for the schema of the arguments.
    """
    parameters = tool.parameters if nested else {}
    properties = tool.parameters.get("properties")
    if not isinstance(properties, Mapping):
        return Signature(tool.name, parameters=parameters)
    schema = _Schema(tool.parameters)
    types = {name: schema.types(argument, _MAX_REFERENCES) for name, argument in properties.items()}
    return Signature(tool.name, {name: " ".join(sorted(found)) for name, found in types.items() if found}, parameters)


class Shape:
    """Schema of a value, with those of its members and items. Each is looked up once."""

    def __init__(self, root: Mapping[str, Any], schema: object) -> None:
        """Take a schema, and the one that its references are in."""
        self._root, self._schema = root, schema
        self._members: dict[str, Shape] = {}

    @cached_property
    def types(self) -> ArgumentTypes:
        """The types that the value may have; empty if any type is allowed."""
        return _Schema(self._root).types(self._schema, _MAX_REFERENCES)

    @cached_property
    def item(self) -> "Shape":
        """The shape of each item."""
        return Shape(self._root, next((part["items"] for part in self.parts() if "items" in part), {}))

    @property
    def values(self) -> list[Any]:
        """All values that it allows, if it lists them; otherwise empty."""
        values: list[Any] = []
        for part in self.parts():
            if (own := _listed(part)) is not None:
                values += own
            elif part.get("type") == "null":
                values.append(None)
            elif not _COMBINING & part.keys():
                return []
        return values

    def member(self, name: str) -> "Shape":
        """Return the shape of the member with this name."""
        if name not in self._members:
            self._members[name] = Shape(self._root, self._schema_of(name))
        return self._members[name]

    def _schema_of(self, name: str) -> object:
        others: object = {}
        for part in self.parts():
            properties = part.get("properties")
            if isinstance(properties, Mapping) and name in properties:
                return properties[name]
            others = others or part.get("additionalProperties")
        return others

    def parts(self) -> Iterator[Mapping[str, Any]]:
        """Yield the schema, and those that it refers to or combines, each once."""
        left, seen = deque([self._schema]), set[int]()
        while left:
            part = left.popleft()
            if not isinstance(part, Mapping) or id(part) in seen:
                continue
            seen.add(id(part))
            yield part
            if isinstance(reference := part.get("$ref"), str):
                left.append(_resolved(self._root, reference))
            for key in _CHOICES:
                left += part[key] if isinstance(part.get(key), list) else []


class _Schema:
    """Types in the schema of a tool. Each reference is followed once."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._referred: dict[str, ArgumentTypes] = {}

    def types(self, schema: object, references: int) -> ArgumentTypes:
        if not isinstance(schema, Mapping) or references == 0:
            return ANY_TYPE
        types = self._declared(schema, references)
        return types | {"null"} if types and schema.get("nullable") is True else types

    def _declared(self, schema: Mapping[str, Any], references: int) -> ArgumentTypes:
        named = schema.get("type")
        if isinstance(named, str):
            return frozenset({named})
        if isinstance(named, list):
            return frozenset(map(str, named))
        if isinstance(reference := schema.get("$ref"), str):
            return self._at(reference, references)
        if (values := _listed(schema)) is not None:
            return frozenset(map(type_of, values))
        return self._union(schema, references)

    def _at(self, reference: str, references: int) -> ArgumentTypes:
        if reference not in self._referred:
            self._referred[reference] = ANY_TYPE  # while it is followed, for a reference to itself
            self._referred[reference] = self.types(_resolved(self._root, reference), references - 1)
        return self._referred[reference]

    def _union(self, schema: Mapping[str, Any], references: int) -> ArgumentTypes:
        if isinstance(parts := schema.get("allOf"), list):
            return next(filter(None, (self.types(part, references - 1) for part in parts)), ANY_TYPE)
        choices = schema.get("anyOf") or schema.get("oneOf")
        if not isinstance(choices, list):
            return ANY_TYPE
        types = [self.types(choice, references - 1) for choice in choices]
        return frozenset().union(*types) if all(types) else ANY_TYPE


def type_of(value: object) -> str:
    """Return JSON schema's name of the type of a value."""
    return _TYPE_NAMES.get(type(value), "null")


def _listed(schema: Mapping[str, Any]) -> list[Any] | None:
    """Return the values that a schema itself lists, or None if it does not list them."""
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    return values if isinstance(values, list) else None


def _resolved(root: Mapping[str, Any], reference: str) -> object:
    """Return the target of a reference inside the schema; None for any other reference."""
    found: object = root if reference.startswith("#/") else None
    for part in reference.split("/")[1:]:
        found = found.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(found, Mapping) else None
    return found
