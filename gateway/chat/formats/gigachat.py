"""GigaChat 3 and 3.1, whose calls are JSON objects of `name` and `arguments` behind a mark."""

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

MARK = "<|function_call|>"
SEPARATOR = "<|message_sep|>"
"""End of a message. In GigaChat 3 a message of the role `function call` follows."""
_ROLE = ("\n\nfunction call", "<|role_sep|>", "\n")


class GigaChat(TaggedFormat):
    """Format of GigaChat."""

    def __init__(self, special_tokens: Mapping[str, int], reasoning_tags: Tags | None, *, by_role: bool) -> None:
        super().__init__(special_tokens, reasoning_tags)
        self.opening = SEPARATOR if by_role else MARK
        self._head = _ROLE if by_role else ()

    @override
    def readers(self, tools: Mapping[str, Signature]) -> Mapping[str, Reader]:
        return {self.opening: partial(_read_call, head=self._head, tools=tools)}

    @override
    def calls(self, rules: Rules, tools: Sequence[Tool], *, parallel: bool) -> str:
        written = [f"{rules.text(*self._head)} {json_call(rules, tool)}" for tool in tools]
        return rules.several(written, rules.text(self.opening), parallel=parallel)


def _read_call(source: Source, out: Output, *, head: tuple[str, ...], tools: Mapping[str, Signature]) -> Reading[None]:
    for text in head:
        yield from source.expect(text)
    yield from source.skip_whitespace()
    yield from read_object(source, out, tools)
