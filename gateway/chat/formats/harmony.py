"""Harmony, the format of OpenAI's gpt-oss.

An answer is one message or several. Each has a header, which names a channel and optionally a recipient, and a body:
`<|channel|>analysis<|message|>…<|end|>` is reasoning, `<|channel|>final<|message|>…` the answer, and
`<|channel|>commentary to=functions.name <|constrain|>json<|message|>{…}<|call|>` a call, after which the model stops.
"""

import re
from collections.abc import Mapping, Sequence
from functools import partial

from typing_extensions import override

from gateway.chat.deltas import FormatParser
from gateway.chat.formats.format import Format
from gateway.chat.formats.lark import ANYTHING, Rules, arguments, either
from gateway.chat.formats.output import Output
from gateway.chat.formats.parser import NOTHING, ReaderParser, Tags, attempt
from gateway.chat.formats.signature import Signature
from gateway.chat.formats.source import Emit, Reading, Source, Truncated
from gateway.chat.formats.values import read_value
from gateway.chat.tools import Tool

CHANNEL = "<|channel|>"
_START, _MESSAGE, _END, _CALL = "<|start|>", "<|message|>", "<|end|>", "<|call|>"
_CONSTRAIN, _RETURN = "<|constrain|>", "<|return|>"
_ENDS = (_END, _RETURN, _CALL)
_BEGINNINGS = (_START, CHANNEL)
_REASONING, _ANSWER, _COMMENT = "analysis", "final", "commentary"
_OPENING = f"{CHANNEL}{_REASONING}{_MESSAGE}"
_PARAGRAPH = "\n\n"
_TO_FUNCTION = " to=functions."
_HEADER = re.compile(r"[^<\n]*")
_ADDRESSED = re.compile(r"\bto=(?!assistant\b)")
"""The model sometimes names itself, and the channel behind that."""
_RECIPIENT = re.compile(r"\bto=(?:functions\.)?([-.\w]+)")
"""In long contexts the model forgets the namespace."""
_CHANNEL_NAME = re.compile(rf"{re.escape(CHANNEL)}\s*(\w+)")


class Harmony(Format):
    """Format of gpt-oss. A message makes one call at most, so there are never parallel calls."""

    between_messages = f"{_START}assistant"

    def __init__(self, special_tokens: Mapping[str, int]) -> None:
        super().__init__(special_tokens, Tags(_OPENING, _END))

    @override
    def parser(
        self, *, tools: Sequence[Signature], thinking: bool, inline: bool = False, drafts: bool = False
    ) -> FormatParser:
        reader = partial(_read_messages, tools={tool.name: tool for tool in tools}, thinking=thinking)
        return ReaderParser(reader, inline=inline)

    @override
    def before(self, rules: Rules, *, thinking: bool) -> str:
        ending = f"{rules.until(_END)} {rules.text(_START, 'assistant')}"
        return ending if thinking else f"({rules.text(CHANNEL, _REASONING, _MESSAGE)} {ending})?"

    @override
    def forced(self, rules: Rules, tools: Sequence[Tool], *, parallel: bool) -> str:
        return either([_call(rules, tool) for tool in tools])

    @override
    def free(self, rules: Rules, tools: Sequence[Tool], *, parallel: bool) -> str:
        return either([self.forced(rules, tools, parallel=parallel), self.answer(rules, ANYTHING)])

    @override
    def answer(self, rules: Rules, content: str) -> str:
        return f"{rules.text(CHANNEL, _ANSWER, _MESSAGE)} {content}"


def _call(rules: Rules, tool: Tool) -> str:
    head = rules.text(CHANNEL, f"{_COMMENT} to=functions.{tool.name} ", _CONSTRAIN, "json", _MESSAGE)
    return f"{head} {arguments(tool)}"


def _read_messages(source: Source, out: Output, *, tools: Mapping[str, Signature], thinking: bool) -> Reading[None]:
    if thinking:
        yield from _read_reasoning(source, out)
    elif (yield from source.follows(_TO_FUNCTION)):  # goes on with the header that the prompt began
        yield from attempt(partial(_read_message, tools=tools, beginning=_TO_FUNCTION), source, out, _TO_FUNCTION)
    while marker := (yield from source.until(_BEGINNINGS, out.content)):
        yield from attempt(partial(_read_message, tools=tools, beginning=marker), source, out, marker)


def _read_message(source: Source, out: Output, *, tools: Mapping[str, Signature], beginning: str) -> Reading[None]:
    rest = yield from _read_header(source)
    source.commit()
    if rest is None:
        return
    header = beginning + rest
    *_, channel = _CHANNEL_NAME.findall(header) or ("",)
    recipient = _RECIPIENT.search(header)
    yield from source.skip_whitespace()
    if recipient and recipient[1] in tools and (yield from _read_call(source, out, recipient[1])):
        return
    if _ADDRESSED.search(header):
        out.content(header)  # its body follows as content
    elif channel == _REASONING:
        yield from _read_reasoning(source, out)
    else:
        out.content(_PARAGRAPH if out.answered else "")
        yield from _read_body(source, out.content)


def _read_call(source: Source, out: Output, name: str) -> Reading[bool]:
    """Read the arguments of a call, and the end of its message. Return False if the body is another text.

    A body that is only an end stands for no arguments. One that the text cuts before it begins is dropped.
    """
    empty = yield from source.follows(*_ENDS)
    if empty is None and (yield from source.peek()) != "{":
        cut = source.ends_in(*_ENDS)
        if cut:
            source.rest()
        return cut
    out.call(name)
    if empty is not None:
        out.arguments(NOTHING)
        return True
    yield from read_value(source, out.arguments)
    yield from source.skip_whitespace()
    yield from source.follows(*_ENDS)
    return True


def _read_reasoning(source: Source, out: Output) -> Reading[None]:
    out.reasoning_begins(_OPENING, after=_PARAGRAPH)
    out.reasoning_ends((yield from _read_body(source, out.reasoning)))


def _read_header(source: Source) -> Reading[str | None]:
    """Return a message's header, with the marker that ends it. Skip a header that the text truncates; return None."""
    parts: list[str] = []
    try:
        while not parts or parts[-1] != _MESSAGE:
            parts += [(yield from source.word(_HEADER)), (yield from source.expect(_MESSAGE, CHANNEL, _CONSTRAIN))]
    except Truncated:
        source.rest()
        return None
    return "".join(parts)


def _read_body(source: Source, emit: Emit) -> Reading[str]:
    """Emit a message's body, and return the marker that ends it, or an empty string if the text ends without one."""
    marker = yield from source.until((*_ENDS, *_BEGINNINGS), emit)
    if marker in _BEGINNINGS:
        source.put_back(len(marker))
    return marker if marker in _ENDS else ""
