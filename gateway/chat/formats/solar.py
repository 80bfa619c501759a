"""Upstage's Solar Open.

An answer is one message or several: `<|think|>…<|end|>` is reasoning, `<|content|>…<|end|>` the text, and
`<|tool_calls|>` begins all calls. A call is an id, the name and the arguments in JSON, with a token before each part.
The prompt ends with the beginning of the first message, and each further one begins in the same way.
"""

import re
from collections.abc import Mapping, Sequence
from functools import partial

from typing_extensions import override

from gateway.chat.formats.format import TaggedFormat
from gateway.chat.formats.lark import ANYTHING, Rules, arguments, either
from gateway.chat.formats.output import Output
from gateway.chat.formats.parser import Reader, Tags, read_arguments
from gateway.chat.formats.signature import Signature
from gateway.chat.formats.source import Malformed, Reading, Source
from gateway.chat.tools import Tool

_BEGIN, _ROLE, _END = "<|begin|>", "assistant", "<|end|>"
_CONTENT, _CALLS, _CALLS_END = "<|content|>", "<|tool_calls|>", "<|calls|>"
CALL, _CALL_NAME, _CALL_ARGUMENTS, _CALL_END = (f"<|tool_call:{part}|>" for part in ("begin", "name", "args", "end"))
_WORD = re.compile(r"[-.\w]*")


class Solar(TaggedFormat):
    """Format of Solar Open."""

    opening = _CALLS
    between_messages = _BEGIN + _ROLE
    marks = (between_messages, _CONTENT, _END, _CALLS, _CALLS_END)

    def __init__(self, special_tokens: Mapping[str, int]) -> None:
        super().__init__(special_tokens, Tags("<|think|>", _END))

    @override
    def readers(self, tools: Mapping[str, Signature]) -> Mapping[str, Reader]:
        return {CALL: partial(_read_call, tools=tools)}

    @override
    def calls(self, rules: Rules, tools: Sequence[Tool], *, parallel: bool) -> str:
        return rules.several([_call(rules, tool) for tool in tools], "", parallel=parallel)

    @override
    def before(self, rules: Rules, *, thinking: bool) -> str:
        ending = f"{rules.until(_END)} {rules.text(_BEGIN, _ROLE)}"
        return ending if thinking else f"({rules.text('<|think|>')} {ending})?"

    @override
    def free(self, rules: Rules, tools: Sequence[Tool], *, parallel: bool) -> str:
        return either([self.forced(rules, tools, parallel=parallel), f"{rules.text(_CONTENT)} {ANYTHING}"])

    @override
    def answer(self, rules: Rules, content: str) -> str:
        """As `TaggedFormat`. An answer that the prompt began has no mark."""
        return f"({rules.text(_CONTENT)})? {content}"


def _read_call(source: Source, out: Output, tools: Mapping[str, Signature]) -> Reading[None]:
    yield from source.word(_WORD)
    yield from source.expect(_CALL_NAME)
    name = yield from source.word(_WORD)
    if name not in tools:
        raise Malformed
    yield from source.expect(_CALL_ARGUMENTS)
    yield from source.skip_whitespace()
    yield from read_arguments(source, out, name, ends=(_CALL_END,))
    yield from source.skip_whitespace()
    yield from source.closing(_CALL_END)


def _call(rules: Rules, tool: Tool) -> str:
    head, name = rules.text(CALL), rules.text(_CALL_NAME, tool.name, _CALL_ARGUMENTS)
    return f"{head} /[a-z0-9]{{10}}/ {name} {arguments(tool)} {rules.text(_CALL_END)}"
