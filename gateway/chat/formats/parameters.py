"""Convert arguments that a family writes one by one, as text between tags, into a JSON object."""

from gateway.chat.formats.output import Output
from gateway.chat.formats.signature import ArgumentTypes, Signature
from gateway.chat.formats.source import Emit, Malformed, Reading, Source, Truncated
from gateway.chat.formats.values import PYTHON, as_json, escaped, quoted, read_value

_TYPES = {"{": "object", "[": "array", "t": "boolean", "f": "boolean", "n": "null", '"': "quoted"}
"""Type of a value by the first character of its JSON text. A text with quotes stays as it is."""


class ArgumentsWriter:
    """Emits a call and its arguments one after the other, as a JSON object."""

    def __init__(self, source: Source, out: Output, tool: Signature) -> None:
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


def read_argument(
    source: Source, out: Output, writer: ArgumentsWriter, name: str, types: ArgumentTypes, closing: tuple[str, ...]
) -> Reading[None]:
    """Read the value of an argument, as `read_text` does, and emit it behind its name.

    Models write an optional argument without a value. If it cannot be a string, it is null, or else left out.
    """
    if types and "string" not in types:
        yield from source.skip_whitespace()
        if (yield from source.follows(*closing)):
            if "null" in types:
                writer.key(name)
                out.arguments("null")
            return
    writer.key(name)
    yield from read_text(source, out, types, closing)


def read_text(source: Source, out: Output, types: ArgumentTypes, closing: tuple[str, ...]) -> Reading[None]:
    """Read an argument up to one of `closing`, and emit it as a JSON value of one of these types.

    Strings are streamed. Other values wait for their end, and become strings if they do not have such a type.
    """
    if types == {"string"}:
        out.arguments('"')
        if (yield from source.until(closing, lambda text: out.arguments(escaped(text)))) is None:
            raise Truncated
        out.arguments('"')
        return
    parts: list[str] = []
    if types and "string" not in types and (yield from _read_json(source, parts.append, closing)):
        out.arguments("".join(parts))
        return
    parts.clear()
    yield from source.until(closing, parts.append)
    out.arguments(_converted("".join(parts), types))


def _read_json(source: Source, emit: Emit, closing: tuple[str, ...]) -> Reading[bool]:
    """Read a value and one of `closing` after it, which its strings may have, too. Return False if it is no value."""
    source.hold()
    try:
        yield from source.skip_whitespace()
        yield from read_value(source, emit, PYTHON)
        yield from source.skip_whitespace()
        yield from source.expect(*closing)
    except Malformed:
        source.rewind()
        return False
    source.commit()
    return True


def _converted(text: str, types: ArgumentTypes) -> str:
    """Return `text` as a JSON value of one of the types if possible, else as a JSON string."""
    value = as_json(text)
    if value is None or ("string" in types and not types & _types_of(value)):
        return quoted(text)
    return value


def _types_of(value: str) -> ArgumentTypes:
    """Return JSON schema's names of the types of a value that is no string, from its JSON text."""
    if value[0] in _TYPES:
        return frozenset({_TYPES[value[0]]})
    return frozenset({"number"} if set(value) & set(".eE") else {"number", "integer"})
