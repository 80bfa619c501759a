"""Functionary 3.2, whose messages begin with their recipient.

An answer is `all` and its text, or the name of a function and its arguments as JSON, on the next line. The prompt ends
with the mark of the first message, and each further one begins with that mark.
"""

import re
from collections.abc import Mapping, Sequence
from functools import partial

from typing_extensions import override

from engine import Grammar, GrammarKind
from gateway.chat.deltas import FormatParser
from gateway.chat.formats.format import Format
from gateway.chat.formats.lark import ANYTHING, Rules, arguments, either
from gateway.chat.formats.output import Output
from gateway.chat.formats.parser import ReaderParser, attempt, read_arguments
from gateway.chat.formats.signature import Signature
from gateway.chat.formats.source import Malformed, Reading, Source
from gateway.chat.tools import Tool

_MARK, _ALL, _HEAD_END = ">>>", "all", "\n"
TO_ALL = f"{_MARK}{_ALL}"
_PARAGRAPH = "\n\n"
_NAME = re.compile(r"[-.\w]*")


class Recipients(Format):
    """Format of Functionary 3.2."""

    show_special = False

    def __init__(self, special_tokens: Mapping[str, int]) -> None:
        super().__init__(special_tokens, None)

    @override
    def parser(
        self, *, tools: Sequence[Signature], thinking: bool, inline: bool = False, drafts: bool = False
    ) -> FormatParser:
        reader = partial(_read_messages, tools={tool.name: tool for tool in tools})
        return ReaderParser(reader, inline=inline)

    @override
    def answer_grammar(self, grammar: Grammar, *, thinking: bool) -> Grammar:
        return grammar if grammar.kind is GrammarKind.GBNF else super().answer_grammar(grammar, thinking=thinking)

    @override
    def before(self, rules: Rules, *, thinking: bool) -> str:
        return ""

    @override
    def forced(self, rules: Rules, tools: Sequence[Tool], *, parallel: bool) -> str:
        return " ".join(_calls(rules, tools, parallel=parallel))

    @override
    def free(self, rules: Rules, tools: Sequence[Tool], *, parallel: bool) -> str:
        call, more = _calls(rules, tools, parallel=parallel)
        later = either([f"{rules.until(f'{_MARK}{tool.name}{_HEAD_END}')} {arguments(tool)}" for tool in tools])
        return f"({call} {more} | {_head(rules, _ALL)} ({later} {more} | {rules.rule(ANYTHING)}))"

    @override
    def answer(self, rules: Rules, content: str) -> str:
        """As `Format`. An answer that the prompt began has no recipient."""
        return f"({_head(rules, _ALL)})? {content}"


def _read_messages(source: Source, out: Output, *, tools: Mapping[str, Signature]) -> Reading[None]:
    message = partial(_read_message, tools=tools)
    yield from attempt(message, source, out, "")
    while marker := (yield from source.until((_MARK,), out.content)):
        yield from attempt(message, source, out, marker)


def _read_message(source: Source, out: Output, *, tools: Mapping[str, Signature]) -> Reading[None]:
    """Read a call, or the head of a text."""
    name = yield from source.word(_NAME)
    if name != _ALL and name not in tools:
        raise Malformed
    yield from source.expect(_HEAD_END)
    if name == _ALL:
        out.content(_PARAGRAPH if out.answered else "")
    else:
        yield from source.skip_whitespace()
        yield from read_arguments(source, out, name)


def _calls(rules: Rules, tools: Sequence[Tool], *, parallel: bool) -> tuple[str, str]:
    """Return the expressions for a call, and for those after it."""
    call = rules.rule(either([f"{_head(rules, tool.name)} {arguments(tool)}" for tool in tools]))
    return call, f"({rules.text(_MARK)} {call})*" if parallel else ""


def _head(rules: Rules, recipient: str) -> str:
    return rules.text(f"{recipient}{_HEAD_END}")
