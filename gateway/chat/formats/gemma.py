"""Google's Gemma: FunctionGemma and Gemma 4, which have markers for calls, and Gemma 3, which has no such markers.

A call is `call:name{argument:value,…}` between two markers. Strings have markers as quotes, and keys of objects have no
quotes. Gemma 4 often forgets the first marker of a string, and writes other quotes and `=`. For Gemma 3, the system
message asks for Python calls in a block named `tool_code`, as Google's guide does.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from typing_extensions import override

from gateway.chat.formats.format import TaggedFormat
from gateway.chat.formats.lark import Rules, either, json_value
from gateway.chat.formats.output import Output
from gateway.chat.formats.parser import Reader, Tags, read_arguments, read_calls
from gateway.chat.formats.python_calls import python_call, read_python_call
from gateway.chat.formats.signature import Signature, signature
from gateway.chat.formats.source import Malformed, Reading, Source
from gateway.chat.formats.text_arguments import ValueTags, listed_arguments, text_value
from gateway.chat.formats.text_calls import IN_PYTHON
from gateway.chat.formats.values import Notation
from gateway.chat.tools import Tool

_NAME = re.compile(r"[-.\w]*")
_NEWLINE, _FENCE = "\n", "```"
_PRINT, _PRINT_END = "print(", ")"


@dataclass(frozen=True, slots=True)
class Markers:
    """Markers around a call, and around a string in it."""

    call: Tags
    """Tags around a call."""
    quote: str
    """Marker at both ends of a string."""


TURN = "<start_of_turn>"
FUNCTION_GEMMA = Markers(Tags("<start_function_call>", "<end_function_call>"), "<escape>")
GEMMA_4 = Markers(Tags("<|tool_call>", "<tool_call|>"), '<|"|>')


class Gemma(TaggedFormat):
    """Format of the Gemma models that have markers for calls."""

    calls_end_reasoning = True
    reasons_again = True

    def __init__(self, special_tokens: Mapping[str, int], reasoning_tags: Tags | None, markers: Markers) -> None:
        super().__init__(special_tokens, reasoning_tags)
        self._markers = markers
        quotes = (markers.quote, '"', "'")
        self._notation = Notation(quotes, bare_keys=True, late=(markers.quote, markers.call.closing))
        self.opening = markers.call.opening

    @override
    def readers(self, tools: Mapping[str, Signature]) -> Mapping[str, Reader]:
        return {self.opening: partial(self._read_call, tools=tools)}

    @override
    def calls(self, rules: Rules, tools: Sequence[Tool], *, parallel: bool) -> str:
        written = [self._call(rules, tool) for tool in tools]
        return rules.several(written, rules.text(self.opening), parallel=parallel)

    def _read_call(self, source: Source, out: Output, tools: Mapping[str, Signature]) -> Reading[None]:
        yield from source.expect("call:")
        name = yield from source.word(_NAME)
        if name not in tools:
            raise Malformed
        yield from read_arguments(source, out, name, self._notation)
        yield from source.closing(self._markers.call.closing)

    def _call(self, rules: Rules, tool: Tool) -> str:
        types_of = signature(tool).types_of
        quotes = ValueTags(self._markers.quote, self._markers.quote)

        def argument(name: str, schema: Mapping[str, object]) -> str:
            if types_of(name) == {"string"}:
                value = text_value(rules, tool, name, schema, quotes)
                return f"{rules.text(f'{name}:', quotes.opening)} {value}"
            return f"{rules.text(f'{name}:')} {json_value(schema)}"

        written = listed_arguments(rules, tool, argument, ",")
        return f"{rules.text(f'call:{tool.name}{{')} {written} {rules.text('}', self._markers.call.closing)}"


class ToolCode(TaggedFormat):
    """Format that the system message asks Gemma 3 for."""

    text_calls = IN_PYTHON
    opening = "```tool_code"

    @override
    def readers(self, tools: Mapping[str, Signature]) -> Mapping[str, Reader]:
        return {self.opening: partial(read_calls, partial(_read_printed, tools=tools), closing=_FENCE)}

    @override
    def calls(self, rules: Rules, tools: Sequence[Tool], *, parallel: bool) -> str:
        call = rules.rule(either([f"{rules.text(_NEWLINE)} {python_call(rules, tool)}" for tool in tools]))
        return f"{call}{'+' if parallel else ''} {rules.text(_NEWLINE + _FENCE)}"

    @override
    def instructions(self, tools: Sequence[Tool]) -> str | None:
        if not tools:
            return None
        listed = "\n".join(json.dumps(tool.described()) for tool in tools)
        return (
            f"You may call these functions, described in JSON schema:\n{listed}\n"
            f"To call, answer with a block of Python calls with keyword arguments, one on each line:\n"
            f"{self.opening}\nname(argument=value)\n{_FENCE}"
        )


def _read_printed(source: Source, out: Output, tools: Mapping[str, Signature]) -> Reading[None]:
    """Read a call in Python syntax, whose result models print, as in Google's guide."""
    printed = (yield from source.follows(_PRINT)) if _PRINT[:-1] not in tools else None
    yield from source.skip_whitespace()
    yield from read_python_call(source, out, tools)
    if printed:
        yield from source.skip_whitespace()
        yield from source.closing(_PRINT_END)
