"""Cohere's Command R7B, Command A and later ones.

Reasoning is `<|START_THINKING|>…<|END_THINKING|>`, an answer has marks around it, and calls are a list of JSON objects
of `tool_call_id`, `tool_name` and `parameters`.
"""

import json
from collections.abc import Mapping, Sequence

from typing_extensions import override

from gateway.chat.formats.lark import Rules, arguments, either
from gateway.chat.formats.listed_calls import ListedCalls
from gateway.chat.formats.parser import Tags
from gateway.chat.tools import Tool

ACTION = Tags("<|START_ACTION|>", "<|END_ACTION|>")
_BEGIN, _NEXT, _END = "[\n    ", ",\n    ", "\n]"

_OPENINGS = ("<|START_RESPONSE|>", "<|START_TEXT|>")
_CLOSINGS = ("<|END_RESPONSE|>", "<|END_TEXT|>")


class Cohere(ListedCalls):
    """Format of Command R7B and later."""

    marks = (*_OPENINGS, *_CLOSINGS)

    def __init__(self, special_tokens: Mapping[str, int], reasoning_tags: Tags | None) -> None:
        super().__init__(special_tokens, reasoning_tags, ACTION)

    @override
    def calls(self, rules: Rules, tools: Sequence[Tool], *, parallel: bool) -> str:
        listed = rules.several([self.call(rules, tool) for tool in tools], rules.text(_NEXT), parallel=parallel)
        return f"{rules.text(_BEGIN)} {listed} {rules.text(_END, ACTION.closing)}"

    @override
    def free(self, rules: Rules, tools: Sequence[Tool], *, parallel: bool) -> str:
        return self.answer(rules, super().free(rules, tools, parallel=parallel))

    @override
    def answer(self, rules: Rules, content: str) -> str:
        opening, closing = (either([rules.text(mark) for mark in marks]) for marks in (_OPENINGS, _CLOSINGS))
        return f"{opening}? {content} {closing}?"

    @override
    def call(self, rules: Rules, tool: Tool) -> str:
        head, name = '{"tool_call_id": "', f'", "tool_name": {json.dumps(tool.name)}, "parameters": '
        return f"{rules.text(head)} /[0-9]{{1,3}}/ {rules.text(name)} {arguments(tool)} {rules.text('}')}"
