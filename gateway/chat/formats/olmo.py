"""Ai2's Olmo 3, whose calls are in Python syntax, one on each line between two tags."""

from collections.abc import Mapping, Sequence
from functools import partial

from typing_extensions import override

from gateway.chat.formats.format import TaggedFormat
from gateway.chat.formats.lark import Rules
from gateway.chat.formats.parser import Reader, Tags, read_calls
from gateway.chat.formats.python_calls import python_call, read_python_call
from gateway.chat.formats.signature import Signature
from gateway.chat.formats.text_calls import IN_OLMO
from gateway.chat.tools import Tool

CALLS = Tags("<function_calls>", "</function_calls>")
_NEWLINE = "\n"


class Olmo(TaggedFormat):
    """Format of Olmo 3."""

    opening = CALLS.opening
    text_calls = IN_OLMO
    call_instructions = f"\nTo call, answer with:\n{CALLS.opening}name(argument=value){CALLS.closing}"

    @override
    def readers(self, tools: Mapping[str, Signature]) -> Mapping[str, Reader]:
        return {self.opening: partial(read_calls, partial(read_python_call, tools=tools), closing=CALLS.closing)}

    @override
    def calls(self, rules: Rules, tools: Sequence[Tool], *, parallel: bool) -> str:
        written = [python_call(rules, tool) for tool in tools]
        return f"{rules.several(written, rules.text(_NEWLINE), parallel=parallel)} {rules.text(CALLS.closing)}"
