"""Reader of arguments whose members and items stand between tags of their own, such as MiniMax M3's."""

import re

from gateway.chat.formats.output import Output
from gateway.chat.formats.parameters import read_text
from gateway.chat.formats.parser import Tags
from gateway.chat.formats.signature import Shape
from gateway.chat.formats.source import Malformed, Reading, Source, Truncated
from gateway.chat.formats.text_arguments import ValueTags
from gateway.chat.formats.values import MAX_DEPTH, quoted

_ITEM = "item"
_NAME = re.compile(r'[^<>"\n]*')
_CONTAINERS = frozenset({"array", "object"})
_STRING = frozenset({"string"})
_EMPTY = {"array": "[]", "object": "{}", "null": "null"}
"""JSON of a value without text, by a type that it may have."""


class NestedReader:
    """Reads the value of an element up to its closing tag, and emits it as JSON."""

    def __init__(self, source: Source, out: Output, first: Tags, value: ValueTags) -> None:
        """Take the source, the output, and the tags of all elements.

        Args:
            source: the text.
            out: the collected output.
            first: the first tag of an element, before and after its name.
            value: the tags of its value.
        """
        self._source, self._out, self._first, self._value = source, out, first, value

    def read(self, name: str, shape: Shape, depth: int = 0) -> Reading[None]:
        """Read the value of the element with this name.

        Strings are streamed, and members and items one after the other.

        Raises:
            Malformed: if the next tag belongs to no value.
        """
        types, closing = shape.types, self._value.named(name).closing
        if types and "string" not in types:
            yield from self._source.skip_whitespace()
        found = None if types == _STRING else (yield from self._source.follows(self._first.opening, closing))
        if found is None:
            yield from read_text(self._source, self._out, types, (closing,))
        elif found == closing:
            fitting = () if "string" in types else types
            self._out.arguments(next((text for name, text in _EMPTY.items() if name in fitting), '""'))
        else:
            yield from self._read_container(shape, closing, depth)

    def _read_container(self, shape: Shape, closing: str, depth: int) -> Reading[None]:
        """Read an array, whose elements are called items, or an object, after the opening of its first element."""
        if depth > MAX_DEPTH:
            raise Malformed
        name = yield from self._read_name()
        containers = shape.types & _CONTAINERS
        listed = name == _ITEM if len(containers) != 1 else "array" in containers
        self._out.arguments("[" if listed else "{")
        while True:
            self._out.arguments("" if listed else f"{quoted(name)}: ")
            yield from self.read(name, shape.item if listed else shape.member(name), depth + 1)
            yield from self._source.skip_whitespace()
            if (yield from self._source.expect(closing, self._first.opening)) == closing:
                break
            self._out.arguments(", ")
            name = yield from self._read_name()
        self._out.arguments("]" if listed else "}")

    def _read_name(self) -> Reading[str]:
        name = yield from self._source.word(_NAME)
        if self._source.finished():
            raise Truncated
        if name.startswith("/"):  # it is the closing tag of another element
            self._source.put_back(len(name))
            raise Malformed
        yield from self._source.expect(self._first.closing)
        return name
