"""Qwen3-Coder, and the models with the same format: Qwen 3.5, Nemotron 3, Step 3.5.

A call is `<tool_call>`, `<function=name>`, for each argument `<parameter=name>`, its text on separate lines,
`</parameter>`, then `</function>`, `</tool_call>`. Models often omit the outer tags.
"""

import re
from collections.abc import Mapping, Sequence
from functools import partial

from typing_extensions import override

from gateway.chat.formats.format import TaggedFormat
from gateway.chat.formats.lark import Rules
from gateway.chat.formats.output import Output
from gateway.chat.formats.parameters import ArgumentsWriter, read_text
from gateway.chat.formats.parser import Reader
from gateway.chat.formats.signature import Signature
from gateway.chat.formats.source import Malformed, Reading, Source
from gateway.chat.formats.text_arguments import text_arguments
from gateway.chat.tools import Tool

_OPENING, _CLOSING = "<tool_call>", "</tool_call>"
FUNCTION, _FUNCTION_END = "<function=", "</function>"
_PARAMETER, _PARAMETER_END = "<parameter=", "</parameter>"
_NEWLINE = "\n"
_NAME = re.compile(r"[^<>\n]*")


class QwenCoder(TaggedFormat):
    """Format of Qwen3-Coder."""

    name = "qwen-coder"
    opening = _OPENING

    @override
    def readers(self, tools: Mapping[str, Signature]) -> Mapping[str, Reader]:
        return {_OPENING: partial(_read_call, tools=tools), FUNCTION: partial(_read_function, tools=tools)}

    @override
    def calls(self, rules: Rules, tools: Sequence[Tool], *, parallel: bool) -> str:
        written = [_call(rules, tool) for tool in tools]
        return rules.several(written, rules.text(_NEWLINE, _OPENING), parallel=parallel)


def _read_call(source: Source, out: Output, tools: Mapping[str, Signature]) -> Reading[None]:
    yield from source.skip_whitespace()
    yield from source.expect(FUNCTION)
    yield from _read_function(source, out, tools)
    yield from source.skip_whitespace()
    yield from source.closing(_CLOSING)


def _read_function(source: Source, out: Output, tools: Mapping[str, Signature]) -> Reading[None]:
    name = yield from source.word(_NAME)
    if name not in tools:
        raise Malformed
    yield from source.expect(">")
    writer = ArgumentsWriter(source, out, tools[name])
    yield from source.skip_whitespace()
    while (yield from source.expect(_PARAMETER, _FUNCTION_END)) == _PARAMETER:
        yield from _read_argument(source, out, tools[name], writer)
        yield from source.skip_whitespace()
    writer.end()


def _read_argument(source: Source, out: Output, tool: Signature, writer: ArgumentsWriter) -> Reading[None]:
    source.hold(len(_PARAMETER))
    name = yield from source.word(_NAME)
    yield from source.expect(">")
    source.commit()
    writer.key(name)
    yield from source.follows(_NEWLINE)
    yield from read_text(source, out, tool.types_of(name), (_NEWLINE + _PARAMETER_END, _PARAMETER_END))


def _call(rules: Rules, tool: Tool) -> str:
    head = f"{_NEWLINE}{FUNCTION}{tool.name}>{_NEWLINE}"
    closing = f"{_NEWLINE}{_PARAMETER_END}{_NEWLINE}"
    written = text_arguments(rules, tool, lambda name: (f"{_PARAMETER}{name}>{_NEWLINE}",), closing)
    return f"{rules.text(head)} {written} {rules.text(_FUNCTION_END + _NEWLINE, _CLOSING)}"
