"""Mistral's models before and since 2025.

Calls are `[TOOL_CALLS]` and a JSON list of objects of `name` and `arguments`. Since 2025, each call is `[TOOL_CALLS]`,
the name, optionally `[CALL_ID]` and an id, then `[ARGS]` and the arguments in JSON.
"""

import re
from collections.abc import Mapping, Sequence
from functools import partial

from typing_extensions import override

from gateway.chat.formats.format import TaggedFormat
from gateway.chat.formats.json_calls import json_call, read_object
from gateway.chat.formats.lark import Rules, arguments
from gateway.chat.formats.output import Output
from gateway.chat.formats.parser import NOTHING, Reader, Tags, read_arguments, read_calls
from gateway.chat.formats.signature import Signature
from gateway.chat.formats.source import Malformed, Reading, Source
from gateway.chat.tools import Tool

TAG, ARGUMENTS = "[TOOL_CALLS]", "[ARGS]"
_ID = "[CALL_ID]"
_NAME = re.compile(r"[-.\w]*")


class Mistral(TaggedFormat):
    """Format of Mistral. Both kinds of calls are parsed; the template decides which one a grammar forces."""

    opening = TAG
    reasons_again = True

    def __init__(self, special_tokens: Mapping[str, int], reasoning_tags: Tags | None, *, listed: bool) -> None:
        """Create the format. `listed` if the template writes calls as a list."""
        super().__init__(special_tokens, reasoning_tags)
        self._listed = listed

    @override
    def readers(self, tools: Mapping[str, Signature]) -> Mapping[str, Reader]:
        return {TAG: partial(_read_calls, tools=tools)}

    @override
    def calls(self, rules: Rules, tools: Sequence[Tool], *, parallel: bool) -> str:
        if self._listed:
            objects = rules.several([json_call(rules, tool) for tool in tools], '", "', parallel=parallel)
            return f'"[" {objects} "]"'
        return rules.several([_named(rules, tool) for tool in tools], rules.text(TAG), parallel=parallel)


def _read_calls(source: Source, out: Output, tools: Mapping[str, Signature]) -> Reading[None]:
    yield from source.skip_whitespace()
    if (yield from source.follows("[")):
        yield from read_calls(partial(read_object, tools=tools), source, out, closing="]")
    else:
        yield from _read_named(source, out, tools)


def _read_named(source: Source, out: Output, tools: Mapping[str, Signature]) -> Reading[None]:
    name = yield from source.word(_NAME)
    if name not in tools:
        raise Malformed
    yield from source.skip_whitespace()
    if (yield from source.follows(_ID)):
        yield from source.word(_NAME)
    marked = yield from source.follows(ARGUMENTS)
    yield from source.skip_whitespace()
    if marked and not tools[name].types and not (yield from source.peek()):
        source.commit()
        out.call(name)
        out.arguments(NOTHING)  # no limit can have cut arguments of a tool that has none
    else:
        yield from read_arguments(source, out, name, ends=(TAG,) if marked else ())


def _named(rules: Rules, tool: Tool) -> str:
    return f"{rules.text(tool.name, ARGUMENTS)} {arguments(tool)}"
