"""Meta's Llama 3.1 to 3.3 and Llama 4.

A call begins the answer without a marker, or follows `<|python_tag|>` anywhere. It is a JSON object of `name` and
`parameters`, with semicolons between several; or all calls are one list in Python syntax, which newer models prefer.
Llama 4 may write them between `<|python_start|>` and `<|python_end|>`.
"""

import json
from collections.abc import Mapping, Sequence
from functools import partial

from typing_extensions import override

from gateway.chat.formats.format import TaggedFormat
from gateway.chat.formats.json_calls import read_object
from gateway.chat.formats.lark import Rules, arguments
from gateway.chat.formats.output import Output
from gateway.chat.formats.parser import Reader, Tags, read_calls
from gateway.chat.formats.python_calls import python_call, read_listed_call, read_python_call
from gateway.chat.formats.signature import Signature
from gateway.chat.formats.source import Reading, Source
from gateway.chat.tools import Tool

TAG = "<|python_tag|>"
_PYTHON = Tags("<|python_start|>", "<|python_end|>")
MARKERS = (TAG, "<|start_header_id|>", "<|header_start|>")
"""Markers that appear only in these models' templates."""

PYTHONIC = "func_name1("
"""Text by which templates ask for calls in Python syntax."""


class Llama(TaggedFormat):
    """Format of Llama. All kinds of calls are parsed; the template decides which one a grammar forces."""

    def __init__(self, special_tokens: Mapping[str, int], reasoning_tags: Tags | None, *, pythonic: bool) -> None:
        """Create the format. `pythonic` if the template asks for calls in Python syntax."""
        super().__init__(special_tokens, reasoning_tags)
        self._pythonic = pythonic
        self.opening = "[" if pythonic else "{"

    @override
    def readers(self, tools: Mapping[str, Signature]) -> Mapping[str, Reader]:
        return {marker: partial(_read_tagged, tools=tools) for marker in (TAG, _PYTHON.opening)}

    @override
    def leading(self, tools: Mapping[str, Signature]) -> Mapping[str, Reader]:
        return {"{": partial(_read_objects, tools=tools), "[": partial(_read_list, tools=tools)} if tools else {}

    @override
    def calls(self, rules: Rules, tools: Sequence[Tool], *, parallel: bool) -> str:
        if self._pythonic:
            listed = rules.several([python_call(rules, tool) for tool in tools], '", "', parallel=parallel)
            return f'{listed} "]"'
        return rules.several([_json_call(rules, tool) for tool in tools], '"; {"', parallel=parallel)

    @override
    def free(self, rules: Rules, tools: Sequence[Tool], *, parallel: bool) -> str:
        """Return the expression for calls, or for an answer that does not begin like one."""
        calls = self.forced(rules, tools, parallel=parallel)
        text = rules.rule(r"/[^\s\{\[](?s:.*)/")
        tagged = f"{rules.text(_PYTHON.opening)} {calls} ({rules.text(_PYTHON.closing)})?"
        return f"({text} | {calls} | {rules.text(TAG)} {calls} | {tagged})?"


def _read_tagged(source: Source, out: Output, tools: Mapping[str, Signature]) -> Reading[None]:
    yield from source.skip_whitespace()
    opening = yield from source.follows("{", "[")
    if opening == "{":
        yield from _read_objects(source, out, tools)
    elif opening == "[":
        yield from _read_list(source, out, tools)
    else:
        yield from read_python_call(source, out, tools)
    yield from source.skip_whitespace()
    yield from source.closing(_PYTHON.closing)


def _read_objects(source: Source, out: Output, tools: Mapping[str, Signature]) -> Reading[None]:
    source.put_back(1)
    yield from read_calls(partial(read_object, tools=tools), source, out)


def _read_list(source: Source, out: Output, tools: Mapping[str, Signature]) -> Reading[None]:
    yield from read_calls(partial(read_listed_call, tools=tools), source, out, closing="]")


def _json_call(rules: Rules, tool: Tool) -> str:
    head = f'"name": {json.dumps(tool.name)}, "parameters": '
    return f"{rules.text(head)} {arguments(tool)} {rules.text('}')}"
