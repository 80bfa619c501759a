"""Zhipu's GLM 4.5 and later.

A call is `<tool_call>`, the name, for each argument `<arg_key>`, its name, `</arg_key>`, `<arg_value>`, its text,
`</arg_value>`, then `</tool_call>`. Newlines separate these parts before GLM 4.7, which has no newlines.
"""

import re
from collections.abc import Mapping, Sequence
from functools import partial

from typing_extensions import override

from gateway.chat.formats.format import WHITESPACE, TaggedFormat
from gateway.chat.formats.lark import Rules
from gateway.chat.formats.output import Output
from gateway.chat.formats.parameters import ArgumentsWriter, read_argument
from gateway.chat.formats.parser import Reader
from gateway.chat.formats.signature import Signature
from gateway.chat.formats.source import Malformed, Reading, Source, Truncated
from gateway.chat.formats.text_arguments import ValueTags, text_arguments
from gateway.chat.tools import Tool

_OPENING, _CLOSING = "<tool_call>", "</tool_call>"
KEY, _KEY_END = "<arg_key>", "</arg_key>"
_VALUE, _VALUE_END = "<arg_value>", "</arg_value>"
_TAGS = (ValueTags(_VALUE, _VALUE_END),)
_NEWLINE = "\n"
_NAME = re.compile(r"[^<\s]*")
_ARGUMENTS = re.compile(r"(?!\s)[^<]*(?<!\s)")


class Glm(TaggedFormat):
    """Format of GLM."""

    opening = _OPENING
    calls_end_reasoning = True

    @override
    def readers(self, tools: Mapping[str, Signature]) -> Mapping[str, Reader]:
        return {_OPENING: partial(_read_call, tools=tools)}

    @override
    def calls(self, rules: Rules, tools: Sequence[Tool], *, parallel: bool) -> str:
        written = [_call(rules, tool) for tool in tools]
        return rules.several(written, f"{WHITESPACE} {rules.text(_OPENING)}", parallel=parallel)


def _read_call(source: Source, out: Output, tools: Mapping[str, Signature]) -> Reading[None]:
    yield from source.skip_whitespace()
    name = yield from source.word(_NAME)
    yield from source.skip_whitespace()
    if name not in tools or (yield from source.peek()) not in ("<", ""):
        raise Malformed
    if source.finished():
        raise Truncated
    writer = ArgumentsWriter(source, out, tools[name])
    while (end := (yield from source.expect(KEY, _CLOSING, _OPENING))) == KEY:
        yield from _read_argument(source, out, tools[name], writer)
        yield from source.skip_whitespace()
    writer.end()
    if end == _OPENING:  # the model forgot to close this call
        source.put_back(len(end))


def _read_argument(source: Source, out: Output, tool: Signature, writer: ArgumentsWriter) -> Reading[None]:
    source.hold(len(KEY))
    parts: list[str] = []
    if (yield from source.until((_KEY_END,), parts.append)) is None:
        raise Truncated
    yield from source.skip_whitespace()
    yield from source.expect(_VALUE)
    source.commit()
    name = "".join(parts).strip()
    yield from read_argument(source, out, writer, name, tool.types_of(name), (_VALUE_END,))


def _call(rules: Rules, tool: Tool) -> str:
    written = text_arguments(rules, tool, _ARGUMENTS, lambda name: (_NEWLINE, KEY, name, _KEY_END, _NEWLINE), _TAGS)
    return f"{rules.text(tool.name)} {written} {rules.text(_NEWLINE, _CLOSING)}"
