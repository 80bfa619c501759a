"""Functionary 3.1, whose calls are `<function=name>`, the arguments as JSON, `</function>`."""

import re
from collections.abc import Mapping, Sequence
from functools import partial

from typing_extensions import override

from gateway.chat.formats.format import TaggedFormat
from gateway.chat.formats.lark import Rules, arguments
from gateway.chat.formats.output import Output
from gateway.chat.formats.parser import Reader, read_arguments
from gateway.chat.formats.signature import Signature
from gateway.chat.formats.source import Malformed, Reading, Source
from gateway.chat.tools import Tool

_OPENING, _HEAD_END, _CLOSING = "<function=", ">", "</function>"
_NAME = re.compile(r"[^<>\n]*")


class Functionary(TaggedFormat):
    """Format of Functionary 3.1."""

    opening = _OPENING

    @override
    def readers(self, tools: Mapping[str, Signature]) -> Mapping[str, Reader]:
        return {_OPENING: partial(_read_call, tools=tools)}

    @override
    def calls(self, rules: Rules, tools: Sequence[Tool], *, parallel: bool) -> str:
        return rules.several([_call(rules, tool) for tool in tools], rules.text(_OPENING), parallel=parallel)


def _read_call(source: Source, out: Output, tools: Mapping[str, Signature]) -> Reading[None]:
    name = yield from source.word(_NAME)
    if name not in tools:
        raise Malformed
    yield from source.expect(_HEAD_END)
    yield from source.skip_whitespace()
    yield from read_arguments(source, out, name)
    yield from source.skip_whitespace()
    yield from source.closing(_CLOSING)


def _call(rules: Rules, tool: Tool) -> str:
    return f"{rules.text(tool.name, _HEAD_END)} {arguments(tool)} {rules.text(_CLOSING)}"
