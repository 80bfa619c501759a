"""Inputs of custom tools. The model calls a custom tool as a function with one argument, the text `input`."""

import json
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from typing import Any

from typing_extensions import override

from engine import Grammar
from gateway.chat.deltas import CallArguments, CallBegan, Delta, FormatParser
from gateway.chat.tools import Tool

INPUT = "input"
"""Name of the argument."""

_OPENING = re.compile(rf'\s*\{{\s*"{INPUT}"\s*:\s*"')
_TEXT = re.compile(r'(?:[^"\\]|\\(?:u[0-9a-fA-F]{4}|[^u]))*', re.DOTALL)
_HIGH = re.compile(r"(?<!\\)(?:\\\\)*(\\u[dD][89abAB][0-9a-fA-F]{2})\Z")
"""Half of a character, whose other half follows. An escaped backslash begins none."""


def custom_tool(name: str, description: str | None, grammar: Grammar | None) -> Tool:
    """Return a custom tool. The model sees the grammar of its input."""
    described: dict[str, Any] = {"type": "string"}
    if grammar is not None:
        described["description"] = f"A text that matches this {grammar.kind.value} grammar:\n{grammar.source}"
    parameters = {
        "type": "object",
        "properties": {INPUT: described},
        "required": [INPUT],
        "additionalProperties": False,
    }
    return Tool(name, description, parameters, strict=True, custom=True, grammar=grammar)


def arguments_of(text: str) -> str:
    """Return the arguments of a call with an input, as JSON."""
    return json.dumps({INPUT: text}, ensure_ascii=False)


class CustomInputs(FormatParser):
    """Parser that replaces the arguments of custom tools by their inputs."""

    def __init__(self, parser: FormatParser, names: Collection[str]) -> None:
        """Wrap a parser. `names` are those of the custom tools."""
        self._parser = parser
        self._names = names
        self._input: _InputReader | None = None

    @property
    @override
    def cut_calls(self) -> Collection[int]:
        return self._parser.cut_calls

    @override
    def feed(self, text: str) -> list[Delta]:
        return list(self._converted(self._parser.feed(text)))

    @override
    def finish(self) -> list[Delta]:
        return list(self._converted(self._parser.finish()))

    def _converted(self, deltas: Iterable[Delta]) -> Iterator[Delta]:
        for delta in deltas:
            match delta:
                case CallBegan(name=name):
                    self._input = _InputReader() if name in self._names else None
                    yield replace(delta, custom=self._input is not None)
                case CallArguments(index, text) if self._input is not None:
                    if read := self._input.read(text):
                        yield CallArguments(index, read)
                case _:
                    yield delta


class _InputReader:
    """Decodes the input from a stream of arguments in JSON."""

    def __init__(self) -> None:
        self._pending = ""
        self._begun = self._ended = False

    def read(self, text: str) -> str:
        """Add a piece of the arguments. Return the next part of the input, which may be empty."""
        self._pending += text
        if not self._begun and (found := _OPENING.match(self._pending)):
            self._begun, self._pending = True, self._pending[found.end() :]
        return self._decoded() if self._begun and not self._ended else ""

    def _decoded(self) -> str:
        found = _TEXT.match(self._pending)
        part = found.group() if found else ""
        self._ended = self._pending[len(part) : len(part) + 1] == '"'
        if not self._ended and (half := _HIGH.search(part)):
            part = part[: half.start(1)]
        self._pending = self._pending[len(part) :]
        decoded: str = json.loads(f'"{part}"', strict=False)
        return decoded.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
