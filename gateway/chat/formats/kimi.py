"""Moonshot's Kimi K2.

Two markers enclose all calls, and two more enclose each call: `functions.name:index`, a marker, the arguments in JSON.
The first part is the call's id. Indices count the calls of the whole conversation from 0.
"""

import re
from collections.abc import Mapping, Sequence
from functools import partial

from typing_extensions import override

from gateway.chat.formats.format import TaggedFormat
from gateway.chat.formats.lark import Rules, arguments
from gateway.chat.formats.output import Output
from gateway.chat.formats.parser import Reader, read_arguments, read_calls, read_marked
from gateway.chat.formats.signature import Signature
from gateway.chat.formats.source import Malformed, Reading, Source
from gateway.chat.tools import Tool

SECTION, _SECTION_END = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
_CALL, _CALL_END = "<|tool_call_begin|>", "<|tool_call_end|>"
_ARGUMENTS = "<|tool_call_argument_begin|>"
_NAMESPACE = "functions."
_ID = re.compile(r"[-.:\w]*")
_INDEX = re.compile(r":\d+$")


class Kimi(TaggedFormat):
    """Format of Kimi K2 and Kimi K2 Thinking."""

    opening = SECTION
    calls_end_reasoning = True

    @override
    def readers(self, tools: Mapping[str, Signature]) -> Mapping[str, Reader]:
        one = partial(_read_call, tools=tools)
        calls = partial(read_calls, partial(read_marked, marker=_CALL, one=one), closing=_SECTION_END)
        return {SECTION: calls, _CALL: one}

    @override
    def calls(self, rules: Rules, tools: Sequence[Tool], *, parallel: bool) -> str:
        written = [_call(rules, tool) for tool in tools]
        return f"{rules.several(written, '', parallel=parallel)} {rules.text(_SECTION_END)}"


def _read_call(source: Source, out: Output, tools: Mapping[str, Signature]) -> Reading[None]:
    yield from source.skip_whitespace()
    name = _name((yield from source.word(_ID)), tools)
    if name not in tools:
        raise Malformed
    yield from source.skip_whitespace()
    yield from source.expect(_ARGUMENTS)
    yield from source.skip_whitespace()
    yield from read_arguments(source, out, name, ends=(_CALL_END, _SECTION_END))
    yield from source.skip_whitespace()
    yield from source.closing(_CALL_END)


def _name(id_: str, tools: Mapping[str, Signature]) -> str:
    """Return the name in a call's id. Models sometimes omit the other parts."""
    name = _INDEX.sub("", id_)
    return name if name in tools else name.removeprefix(_NAMESPACE)


def _call(rules: Rules, tool: Tool) -> str:
    head = f"{rules.text(_CALL, f'{_NAMESPACE}{tool.name}:')} /[0-9]{{1,4}}/ {rules.text(_ARGUMENTS)}"
    return f"{head} {arguments(tool)} {rules.text(_CALL_END)}"
