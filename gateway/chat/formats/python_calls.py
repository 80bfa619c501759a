"""Calls in Python syntax: `name(argument=value, …)`."""

import re
from collections.abc import Mapping
from typing import Any

from gateway.chat.formats.json_calls import read_object
from gateway.chat.formats.lark import Rules, json_text, json_value
from gateway.chat.formats.output import Output
from gateway.chat.formats.parameters import ArgumentsWriter
from gateway.chat.formats.signature import Signature
from gateway.chat.formats.source import Malformed, Reading, Source, Truncated
from gateway.chat.formats.text_arguments import listed_arguments
from gateway.chat.formats.values import BARE_KEY, PYTHON_CALL, read_value
from gateway.chat.tools import Tool

_NAME = re.compile(r"[-.\w]*")
_METHOD = ".call"


def read_python_call(source: Source, out: Output, tools: Mapping[str, Signature]) -> Reading[None]:
    """Read a call with keyword arguments. `name.call(…)`, as Llama 3.1 writes it, means `name(…)`.

    Raises:
        Malformed: if the text is not a call of one of `tools`.
    """
    word = yield from source.word(_NAME)
    name = word if word in tools else word.removesuffix(_METHOD)
    if name not in tools:
        raise Malformed
    yield from source.expect("(")
    writer = ArgumentsWriter(source, out, tools[name])
    yield from source.skip_whitespace()
    separator = yield from source.follows(")")
    while separator != ")":
        yield from _read_argument(source, out, writer)
        yield from source.skip_whitespace()
        separator = yield from source.expect(",", ")")
        if separator == ",":  # there may be one behind the last argument
            yield from source.skip_whitespace()
            separator = (yield from source.follows(")")) or separator
    writer.end()


def read_listed_call(source: Source, out: Output, tools: Mapping[str, Signature]) -> Reading[None]:
    """Read a call in a list: in Python syntax, or as a JSON object, which models also write.

    Raises:
        Malformed: if the text is not a call of one of `tools`.
    """
    reader = read_object if (yield from source.peek()) == "{" else read_python_call
    yield from reader(source, out, tools)


def python_call(rules: Rules, tool: Tool) -> str:
    """Return the expression for a call, with values in JSON."""
    grammar = tool.grammar

    def argument(name: str, schema: Mapping[str, Any]) -> str:
        return f"{rules.text(f'{name}=')} {json_value(schema) if grammar is None else json_text(grammar)}"

    written = listed_arguments(rules, tool, argument, ", ")
    return f"{rules.text(f'{tool.name}(')} {written} {rules.text(')')}"


def _read_argument(source: Source, out: Output, writer: ArgumentsWriter) -> Reading[None]:
    source.hold()
    name = yield from source.word(BARE_KEY)
    if not name:
        raise Truncated if source.finished() else Malformed
    yield from source.skip_whitespace()
    yield from source.expect("=")
    source.commit()
    yield from source.skip_whitespace()
    writer.key(name)
    yield from read_value(source, out.arguments, PYTHON_CALL)
