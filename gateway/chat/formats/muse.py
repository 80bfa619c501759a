"""Meta's Muse Glimmer, whose messages begin with their recipient.

An answer is one message or several: ` to=self<|message|>…<|eom|>` is reasoning, ` to=user<|message|>…<|eot|>` the text,
and ` to=name<|message|>` a call of this function between tags, with further tags around its arguments. The prompt ends
with the beginning of the first message, and each further one begins in the same way.
"""

import re
from collections.abc import Mapping, Sequence
from functools import partial

from typing_extensions import override

from engine import Grammar, GrammarKind
from gateway.chat.deltas import FormatParser
from gateway.chat.formats.format import Format
from gateway.chat.formats.lark import ANYTHING, Rules
from gateway.chat.formats.output import Output
from gateway.chat.formats.parser import Reader, ReaderParser, Tags, attempt, read_calls, read_marked
from gateway.chat.formats.signature import Signature
from gateway.chat.formats.source import Reading, Source
from gateway.chat.formats.tag_calls import Markup, TagCalls
from gateway.chat.formats.text_arguments import ValueTags
from gateway.chat.tools import Tool

_START, _ROLE, _MESSAGE = "<|start|>", "assistant", "<|message|>"
_NEXT, _END = "<|eom|>", "<|eot|>"
_TO, _SELF, _USER = " to=", "self", "user"
_NEWLINE, _PARAGRAPH = "\n", "\n\n"
_RECIPIENT = re.compile(r"[^<\s]*")
BLOCK = Tags("<atem:function_calls>", "</atem:function_calls>")
_MARKUP = Markup(
    block=None,
    call=Tags('<atem:invoke name="', "</atem:invoke>"),
    head_end='">',
    argument=Tags('<atem:parameter name="', '">'),
    values=(ValueTags("", "</atem:parameter>"),),
    inner_tokens=(
        BLOCK.opening,
        "<atem:invoke",
        "<atem:parameter",
        "</atem:parameter>",
        "</atem:invoke>",
        BLOCK.closing,
    ),
)


class Muse(Format):
    """Format of Muse Glimmer. Calls stand only in messages to a function: an answer may show their tags."""

    between_messages = _START + _ROLE
    inner_tokens = _MARKUP.inner_tokens

    def __init__(self, special_tokens: Mapping[str, int]) -> None:
        super().__init__(special_tokens, Tags(f"{_TO}{_SELF}{_MESSAGE}", _NEXT))
        self._calls = TagCalls(special_tokens, None, _MARKUP)

    @override
    def parser(
        self, *, tools: Sequence[Signature], thinking: bool, inline: bool = False, drafts: bool = False
    ) -> FormatParser:
        call = self._calls.readers({tool.name: tool for tool in tools})[_MARKUP.call.opening]
        return ReaderParser(partial(_read_messages, call=call, thinking=thinking), inline=inline)

    @override
    def answer_grammar(self, grammar: Grammar, *, thinking: bool) -> Grammar:
        if grammar.kind is GrammarKind.GBNF and not thinking:
            return grammar
        return super().answer_grammar(grammar, thinking=thinking)

    @override
    def before(self, rules: Rules, *, thinking: bool) -> str:
        ending = f"{rules.until(_NEXT)} {rules.text(_START, _ROLE)}"
        return ending if thinking else f"({rules.text(f'{_TO}{_SELF}', _MESSAGE)} {ending})?"

    @override
    def forced(self, rules: Rules, tools: Sequence[Tool], *, parallel: bool) -> str:
        messages = [self._message(rules, tool) for tool in tools]
        return rules.several(messages, rules.text(_NEXT, _START, _ROLE), parallel=parallel)

    @override
    def free(self, rules: Rules, tools: Sequence[Tool], *, parallel: bool) -> str:
        calls = self.forced(rules, tools, parallel=parallel)
        answer = f"{rules.until(_NEXT)} {rules.text(_START, _ROLE)} {calls}"
        return f"({calls} | {_head(rules, _USER)} ({answer} | {rules.rule(ANYTHING)}))"

    @override
    def answer(self, rules: Rules, content: str) -> str:
        """As `Format`. An answer that the prompt began has no recipient."""
        return f"({_head(rules, _USER)})? {content}"

    def _message(self, rules: Rules, tool: Tool) -> str:
        call = self._calls.forced(rules, [tool], parallel=False)
        opening, end = rules.text(BLOCK.opening, _NEWLINE), rules.text(_NEWLINE, BLOCK.closing)
        return f"{_head(rules, tool.name)} {opening} {call} {end}"


def _head(rules: Rules, recipient: str) -> str:
    return rules.text(f"{_TO}{recipient}", _MESSAGE)


def _read_messages(source: Source, out: Output, *, call: Reader, thinking: bool) -> Reading[None]:
    message = partial(_read_message, call=call)
    if thinking:
        yield from _read_reasoning(source, out)
    else:
        yield from attempt(message, source, out, "")
    while marker := (yield from source.until((_START, _NEXT, _END), out.content)):
        if marker == _START:
            yield from attempt(partial(message, role=_ROLE), source, out, marker)


def _read_message(source: Source, out: Output, *, call: Reader, role: str = "") -> Reading[None]:
    """Read reasoning, calls, or the head of a text."""
    yield from source.expect(role)
    addressed = yield from source.follows(_TO)
    recipient = (yield from source.word(_RECIPIENT)) if addressed else _USER
    yield from source.expect(_MESSAGE)
    if recipient == _SELF:
        source.commit()
        yield from _read_reasoning(source, out)
    elif recipient == _USER:
        source.commit()
        out.content(_PARAGRAPH if out.answered else "")
    else:
        yield from source.skip_whitespace()
        yield from source.expect(BLOCK.opening)
        one = partial(read_marked, marker=_MARKUP.call.opening, one=call)
        yield from read_calls(one, source, out, closing=BLOCK.closing)


def _read_reasoning(source: Source, out: Output) -> Reading[None]:
    out.reasoning_begins(f"{_TO}{_SELF}{_MESSAGE}", after=_PARAGRAPH)
    marker = yield from source.until((_START, _NEXT, _END), out.reasoning)
    out.reasoning_ends("" if marker is None or marker == _START else marker)
    if marker == _START:
        source.put_back(len(marker))
