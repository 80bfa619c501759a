"""Nous Research's Hermes 2 Pro. Qwen 2.5, Qwen 3 and the gateway's embedded model use the same format.

A call is `<tool_call>`, a JSON object of `name` and `arguments`, `</tool_call>`. Output of unknown models is parsed
the same way.
"""

import json
from collections.abc import Mapping, Sequence
from functools import partial

from typing_extensions import override

from gateway.chat.formats.format import TaggedFormat
from gateway.chat.formats.json_calls import json_call, read_object
from gateway.chat.formats.lark import Rules
from gateway.chat.formats.output import Output
from gateway.chat.formats.parser import Reader, Tags
from gateway.chat.formats.signature import Signature
from gateway.chat.formats.source import Reading, Source
from gateway.chat.tools import Tool

OPENING, _CLOSING = "<tool_call>", "</tool_call>"
_NEWLINE = "\n"


class Hermes(TaggedFormat):
    """Format of Hermes, with `<think>` for the models that have it."""

    opening = OPENING

    @override
    def readers(self, tools: Mapping[str, Signature]) -> Mapping[str, Reader]:
        return {OPENING: partial(_read_call, tools=tools)}

    @override
    def calls(self, rules: Rules, tools: Sequence[Tool], *, parallel: bool) -> str:
        written = [_call(rules, tool) for tool in tools]
        return rules.several(written, rules.text(_NEWLINE, OPENING), parallel=parallel)


class Plain(Hermes):
    """Format of unknown models. Their chat template has no markers for calls.

    Calls are written as in Hermes, since models without training for calls follow that format best. If the template
    does not render tools, the system message does.
    """

    def __init__(self, special_tokens: Mapping[str, int], reasoning_tags: Tags | None, *, shows_tools: bool) -> None:
        super().__init__(special_tokens, reasoning_tags)
        self.show_special = reasoning_tags is not None
        self._shows_tools = shows_tools

    @override
    def instructions(self, tools: Sequence[Tool]) -> str | None:
        if self._shows_tools or not tools:
            return None
        listed = "\n".join(json.dumps(tool.described()) for tool in tools)
        return (
            f"You may call these functions:\n<tools>\n{listed}\n</tools>\nTo call one, answer with:\n"
            f'{OPENING}\n{{"name": <name>, "arguments": <arguments>}}\n{_CLOSING}'
        )


def _read_call(source: Source, out: Output, tools: Mapping[str, Signature]) -> Reading[None]:
    yield from source.skip_whitespace()
    yield from read_object(source, out, tools)
    yield from source.skip_whitespace()
    yield from source.closing(_CLOSING)


def _call(rules: Rules, tool: Tool) -> str:
    return f"{rules.text(_NEWLINE)} {json_call(rules, tool)} {rules.text(_NEWLINE, _CLOSING)}"
