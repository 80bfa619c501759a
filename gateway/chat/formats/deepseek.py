"""DeepSeek's V3, R1 and V3.1.

Two markers enclose all calls, and two more enclose each call. A call is a type, a separator, the name on the same line,
then the arguments in a block of JSON. Since V3.1 it is the name, a separator, the arguments.
"""

import json
import re
from collections.abc import Mapping, Sequence
from functools import partial

from typing_extensions import override

from gateway.chat.formats.format import TaggedFormat
from gateway.chat.formats.lark import Rules, arguments
from gateway.chat.formats.output import Output
from gateway.chat.formats.parser import Reader, Tags, read_arguments, read_calls, read_marked
from gateway.chat.formats.signature import Signature
from gateway.chat.formats.source import Malformed, Reading, Source
from gateway.chat.tools import Tool

_BAR = "\uff5c"  # these models use the full-width bar
TAG, _END = f"<{_BAR}tool▁calls▁begin{_BAR}>", f"<{_BAR}tool▁calls▁end{_BAR}>"
_CALL, _CALL_END = f"<{_BAR}tool▁call▁begin{_BAR}>", f"<{_BAR}tool▁call▁end{_BAR}>"
_SEPARATOR = f"<{_BAR}tool▁sep{_BAR}>"
_TYPE, BLOCK, _BLOCK_END = "function", "```json", "```"
_NEWLINE = "\n"
_NAME = re.compile(r"[-.\w]*")


class DeepSeek(TaggedFormat):
    """Format of DeepSeek. Both kinds of calls are parsed; the template decides which one a grammar forces."""

    opening = TAG
    calls_end_reasoning = True

    def __init__(self, special_tokens: Mapping[str, int], reasoning_tags: Tags | None, *, typed: bool) -> None:
        """Create the format.

        Args:
            special_tokens: as in `Format`.
            reasoning_tags: as in `Format`.
            typed: True if the template writes a call's type before its name.
        """
        super().__init__(special_tokens, reasoning_tags)
        self._typed = typed

    @override
    def instructions(self, tools: Sequence[Tool]) -> str | None:
        """As `Format`, in the words of DeepSeek's guide to V3.1. DeepSeek's templates of R1 to V3.1 show no tools."""
        if self.shows_tools or not tools:
            return None
        listed = "\n\n".join(map(_described, tools))
        call = "".join(self._around("tool_call_name", "tool_call_arguments"))
        form = f"{TAG}{call}{{additional_tool_calls}}{_END}"
        return (
            f"## Tools\nYou have access to the following tools:\n\n{listed}\n\n"
            f"IMPORTANT: ALWAYS adhere to this exact format for tool use:\n{form}\n\n"
            "Where:\n"
            "- `tool_call_name` must be an exact match to one of the available tools\n"
            "- `tool_call_arguments` must be valid JSON that strictly follows the tool's Parameters Schema\n"
            "- For multiple tool calls, chain them directly without separators or spaces"
        )

    @override
    def readers(self, tools: Mapping[str, Signature]) -> Mapping[str, Reader]:
        one = partial(_read_call, tools=tools)
        return {TAG: partial(read_calls, partial(read_marked, marker=_CALL, one=one), closing=_END), _CALL: one}

    @override
    def calls(self, rules: Rules, tools: Sequence[Tool], *, parallel: bool) -> str:
        written = [self._call(rules, tool) for tool in tools]
        return f"{rules.several(written, f'{rules.text(_NEWLINE)}?', parallel=parallel)} {rules.text(_END)}"

    def _call(self, rules: Rules, tool: Tool) -> str:
        *head, _, tail, end = self._around(tool.name, "")
        return f"{rules.text(*head)} {arguments(tool)} {rules.text(tail, end)}"

    def _around(self, name: str, given: str) -> tuple[str, ...]:
        """Return the parts of a call of a tool with arguments, of which the last three are these and their end."""
        head = (_TYPE, _SEPARATOR, f"{name}\n{BLOCK}\n") if self._typed else (name, _SEPARATOR)
        return (_CALL, *head, given, f"\n{_BLOCK_END}" if self._typed else "", _CALL_END)


def _described(tool: Tool) -> str:
    described = tool.described()
    parameters = json.dumps(described["parameters"], ensure_ascii=False)
    return f"### {tool.name}\nDescription: {described.get('description', '')}\n\nParameters: {parameters}"


def _read_call(source: Source, out: Output, tools: Mapping[str, Signature]) -> Reading[None]:
    """Read a call with or without its type, and with or without the marks of the block of JSON."""
    first = yield from source.word(_NAME)
    yield from source.expect(_SEPARATOR)
    yield from source.skip_whitespace()
    second = yield from source.word(_NAME)
    name = second or first
    if name not in tools:
        raise Malformed
    yield from source.skip_whitespace()
    block = yield from source.follows(BLOCK, _BLOCK_END)
    yield from source.skip_whitespace()
    yield from read_arguments(source, out, name, ends=(_BLOCK_END, _CALL_END, _END))
    yield from source.skip_whitespace()
    if second or block:
        yield from source.closing(_BLOCK_END)
        yield from source.skip_whitespace()
    yield from source.closing(_CALL_END)
