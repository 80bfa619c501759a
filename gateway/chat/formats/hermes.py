"""Nous Research's Hermes 2 Pro. Qwen 2.5, Qwen 3 and the gateway's embedded model use the same format.

A call is `<tool_call>`, a JSON object of `name` and `arguments`, `</tool_call>`. Small models also write several such
objects between the tags, or a list of them, and a brace too many or too few. Output of unknown models is parsed the
same way.
"""

import re
from collections.abc import Mapping, Sequence
from functools import partial

from typing_extensions import override

from gateway.chat.formats.format import TaggedFormat
from gateway.chat.formats.json_calls import json_call, read_object
from gateway.chat.formats.lark import Rules
from gateway.chat.formats.output import Output
from gateway.chat.formats.parser import Reader, Tags, read_calls
from gateway.chat.formats.signature import Signature
from gateway.chat.formats.source import Reading, Source
from gateway.chat.tools import Tool

OPENING, _CLOSING = "<tool_call>", "</tool_call>"
_NEWLINE = "\n"
_BRACES = re.compile(r"[\s}]*")


class Hermes(TaggedFormat):
    """Format of Hermes, with `<think>` for the models that have it."""

    opening = OPENING
    call_instructions = (
        f'\nTo call one, answer with:\n{OPENING}\n{{"name": <name>, "arguments": <arguments>}}\n{_CLOSING}'
    )
    calls_end_reasoning = True  # Qwen 3 sometimes forgets the end of its reasoning

    @override
    def readers(self, tools: Mapping[str, Signature]) -> Mapping[str, Reader]:
        return {OPENING: partial(_read_calls, tools=tools)}

    @override
    def calls(self, rules: Rules, tools: Sequence[Tool], *, parallel: bool) -> str:
        written = [_call(rules, tool) for tool in tools]
        return rules.several(written, rules.text(_NEWLINE, OPENING), parallel=parallel)


class Plain(Hermes):
    """Format of unknown models. Their chat template has no markers for calls.

    Calls are written as in Hermes, since models without training for calls follow that format best. If the template
    does not render tools, the system message does.
    """

    def __init__(self, special_tokens: Mapping[str, int], reasoning_tags: Tags | None) -> None:
        super().__init__(special_tokens, reasoning_tags)
        self.show_special = reasoning_tags is not None


def _read_calls(source: Source, out: Output, tools: Mapping[str, Signature]) -> Reading[None]:
    one = partial(_read_call, tools=tools)
    yield from source.skip_whitespace()
    if not (yield from source.follows("[")):
        yield from read_calls(one, source, out, closing=_CLOSING)
        return
    yield from read_calls(one, source, out, closing="]")
    yield from source.skip_whitespace()
    yield from source.closing(_CLOSING)


def _read_call(source: Source, out: Output, tools: Mapping[str, Signature]) -> Reading[None]:
    yield from read_object(source, out, tools, end=_CLOSING)
    yield from source.word(_BRACES)


def _call(rules: Rules, tool: Tool) -> str:
    return f"{rules.text(_NEWLINE)} {json_call(rules, tool)} {rules.text(_NEWLINE, _CLOSING)}"
