"""Families with tags around each argument: Qwen3-Coder, Seed-OSS, MiniMax M2, DeepSeek V3.2 and V4.

A call is a tag with the name, for each argument a tag with its name, the argument's text, a closing tag, then the
call's closing tag. A block encloses one call or all calls. Models often omit the block's tags.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from typing_extensions import override

from gateway.chat.formats.format import TaggedFormat
from gateway.chat.formats.lark import Rules
from gateway.chat.formats.output import Output
from gateway.chat.formats.parameters import ArgumentsWriter, read_text
from gateway.chat.formats.parser import Reader, Tags
from gateway.chat.formats.signature import ANY_TYPE, ArgumentTypes, Signature
from gateway.chat.formats.source import Malformed, Reading, Source
from gateway.chat.formats.text_arguments import text_arguments
from gateway.chat.tools import Tool

_NEWLINE = "\n"
_NAME = re.compile(r'[^<>"\n]*')
_STRING = frozenset({"string"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Markup:
    """Tags of a family."""

    name: str
    """Name of the family."""
    block: Tags
    """Tags around one call, or around all calls."""
    shared_block: bool
    """True if one block encloses all calls."""
    call: Tags
    """Tags around a call. The first ends before the name."""
    argument: Tags
    """Tags around an argument. The first ends before the name."""
    head_end: str
    """End of a call's first tag, after the name."""
    value_starts: Mapping[str, ArgumentTypes]
    """Ends of an argument's first tag, after the name, with the types that each declares; that of strings is first."""
    own_lines: bool
    """True if values stand on lines of their own."""
    inner_token: str = ""
    """Special token inside the tags, if there is one."""
    calls_end_reasoning: bool = False
    """True if models call tools without the end of their reasoning."""


FUNCTION, PARAMETER = "<function=", "<parameter="
_FUNCTION, _PARAMETER = Tags(FUNCTION, "</function>"), Tags(PARAMETER, "</parameter>")
_UNTYPED = {">": ANY_TYPE}

QWEN_CODER = Markup(
    name="qwen-coder",
    block=Tags("<tool_call>", "</tool_call>"),
    shared_block=False,
    call=_FUNCTION,
    argument=_PARAMETER,
    head_end=">",
    value_starts=_UNTYPED,
    own_lines=True,
)
"""Tags of Qwen3-Coder, Qwen 3.5, Nemotron 3 and Step 3.5."""

SEED = Markup(
    name="seed",
    block=Tags("<seed:tool_call>", "</seed:tool_call>"),
    shared_block=False,
    call=_FUNCTION,
    argument=_PARAMETER,
    head_end=">",
    value_starts=_UNTYPED,
    own_lines=False,
)
"""Tags of Seed-OSS."""

MINIMAX = Markup(
    name="minimax",
    block=Tags("<minimax:tool_call>", "</minimax:tool_call>"),
    shared_block=True,
    call=Tags('<invoke name="', "</invoke>"),
    argument=Tags('<parameter name="', "</parameter>"),
    head_end='">',
    value_starts={'">': ANY_TYPE},
    own_lines=False,
)
"""Tags of MiniMax M2."""

DSML = "\uff5cDSML\uff5c"
FUNCTION_CALLS = "function_calls"


def dsml(block: str) -> Markup:
    """Return the tags of DeepSeek V3.2 and V4, which differ in the name of the block."""
    return Markup(
        name="dsml",
        block=Tags(f"<{DSML}{block}>", f"</{DSML}{block}>"),
        shared_block=True,
        call=Tags(f'<{DSML}invoke name="', f"</{DSML}invoke>"),
        argument=Tags(f'<{DSML}parameter name="', f"</{DSML}parameter>"),
        head_end='">',
        value_starts={'" string="true">': _STRING, '" string="false">': ANY_TYPE},
        own_lines=False,
        inner_token=DSML,
        calls_end_reasoning=True,
    )


class TagCalls(TaggedFormat):
    """Format of the models with these tags."""

    def __init__(self, special_tokens: Mapping[str, int], reasoning_tags: Tags | None, markup: Markup) -> None:
        super().__init__(special_tokens, reasoning_tags)
        self._markup = markup
        self.name, self.opening = markup.name, markup.block.opening
        self.inner_token, self.calls_end_reasoning = markup.inner_token, markup.calls_end_reasoning

    @override
    def readers(self, tools: Mapping[str, Signature]) -> Mapping[str, Reader]:
        one = partial(_read_call, markup=self._markup, tools=tools)
        return {self.opening: partial(_read_block, markup=self._markup, one=one), self._markup.call.opening: one}

    @override
    def calls(self, rules: Rules, tools: Sequence[Tool], *, parallel: bool) -> str:
        block = self._markup.block
        written = [_call(rules, tool, self._markup) for tool in tools]
        if self._markup.shared_block:
            return f"{rules.several(written, '', parallel=parallel)} {rules.text(_NEWLINE, block.closing)}"
        closed = [f"{call} {rules.text(_NEWLINE, block.closing)}" for call in written]
        return rules.several(closed, rules.text(_NEWLINE, block.opening), parallel=parallel)


def _read_block(source: Source, out: Output, *, markup: Markup, one: Reader) -> Reading[None]:
    yield from source.skip_whitespace()
    yield from source.expect(markup.call.opening)
    yield from one(source, out)


def _read_call(source: Source, out: Output, *, markup: Markup, tools: Mapping[str, Signature]) -> Reading[None]:
    """Read a call after its opening, and the block's closing tag if it follows."""
    name = yield from source.word(_NAME)
    if name not in tools:
        raise Malformed
    yield from source.expect(markup.head_end)
    writer = ArgumentsWriter(source, out, tools[name])
    yield from source.skip_whitespace()
    while (yield from source.expect(markup.argument.opening, markup.call.closing)) == markup.argument.opening:
        yield from _read_argument(source, out, markup, tools[name], writer)
        yield from source.skip_whitespace()
    writer.end()
    yield from source.skip_whitespace()
    yield from source.closing(markup.block.closing)


def _read_argument(
    source: Source, out: Output, markup: Markup, tool: Signature, writer: ArgumentsWriter
) -> Reading[None]:
    source.hold(len(markup.argument.opening))
    name = yield from source.word(_NAME)
    start = yield from source.expect(*markup.value_starts)
    source.commit()
    writer.key(name)
    types = tool.types_of(name)
    if len(markup.value_starts) > 1:
        types = _declared(types, markup.value_starts[start])
    closing = markup.argument.closing
    if markup.own_lines:
        yield from source.follows(_NEWLINE)
        yield from read_text(source, out, types, (_NEWLINE + closing, closing))
    else:
        yield from read_text(source, out, types, (closing,))


def _declared(types: ArgumentTypes, declared: ArgumentTypes) -> ArgumentTypes:
    """Return the types that remain of a schema's where a tag declares a string, or anything but a string.

    The schema decides where it allows no choice.
    """
    if types and "string" not in types:
        return types
    return declared or (types - _STRING or types)


def _call(rules: Rules, tool: Tool, markup: Markup) -> str:
    line = _NEWLINE if markup.own_lines else ""

    def opening(name: str, text: bool) -> tuple[str, ...]:
        starts = list(markup.value_starts)
        return _NEWLINE, f"{markup.argument.opening}{name}{starts[0 if text else -1]}{line}"

    written = text_arguments(rules, tool, opening, markup.argument.closing, line)
    head = rules.text(_NEWLINE, f"{markup.call.opening}{tool.name}{markup.head_end}")
    return f"{head} {written} {rules.text(_NEWLINE, markup.call.closing)}"
