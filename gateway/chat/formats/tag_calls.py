"""Families with tags around each argument: Qwen3-Coder, Seed-OSS, MiniMax, MiniCPM5, Kimi K3, DeepSeek V3.2 and V4.

A call is a tag with the name, for each argument a tag with its name, the argument's text, a closing tag, then the
call's closing tag. A block encloses one call or all calls, if there is one. Models often omit the block's tags.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from typing_extensions import override

from gateway.chat.formats.format import TaggedFormat
from gateway.chat.formats.lark import Rules, either
from gateway.chat.formats.nested_values import NestedReader
from gateway.chat.formats.output import Output
from gateway.chat.formats.parameters import ArgumentsWriter, read_argument
from gateway.chat.formats.parser import Reader, Tags, read_marked
from gateway.chat.formats.signature import ArgumentTypes, Shape, Signature
from gateway.chat.formats.source import Malformed, Reading, Source, Truncated
from gateway.chat.formats.text_arguments import ValueTags, text_arguments
from gateway.chat.tools import Tool

_NEWLINE = "\n"
_NAME = re.compile(r'[^<>"\n]*')
_ELEMENTS = re.compile(r'[^/<>"\n][^<>"\n]*')
_INDEX = re.compile(r"[0-9]*")
_NO_STRING = frozenset({"number", "integer", "boolean", "null", "object", "array"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Markup:
    """Tags of a family."""

    block: Tags | None
    """Tags around one call, or around all calls, if there are any."""
    shared_block: bool = False
    """True if one block encloses all calls."""
    call: Tags
    """Tags around a call. The first ends before the name."""
    head_end: str
    """End of a call's first tag, after the name."""
    index: str = ""
    """Text between the name and the index of the call, if there is an index."""
    argument: Tags
    """First tag of an argument, before and after its name."""
    values: tuple[ValueTags, ...]
    """Rest of an argument's first tag, if it declares the type, and the closing tag."""
    between_calls: str = "\n"
    """Whitespace around a call."""
    between_arguments: str = "\n"
    """Whitespace around an argument."""
    own_lines: bool = False
    """True if values stand on lines of their own."""
    nested: bool = False
    """True if members and items of values stand between tags as arguments do."""
    inner_tokens: tuple[str, ...] = ()
    """Tokens inside the tags that are special in some vocabularies."""
    calls_end_reasoning: bool = False
    """True if models call tools without the end of their reasoning."""


FUNCTION, PARAMETER = "<function=", "<parameter="
_FUNCTION = Tags(FUNCTION, "</function>")
_PARAMETER = Tags(PARAMETER, ">")

QWEN_CODER = Markup(
    block=Tags("<tool_call>", "</tool_call>"),
    call=_FUNCTION,
    head_end=">",
    argument=_PARAMETER,
    values=(ValueTags("", "</parameter>"),),
    own_lines=True,
    calls_end_reasoning=True,
)
"""Tags of Qwen3-Coder, Qwen 3.5, Nemotron 3 and Step 3.5."""

SEED_BLOCK = Tags("<seed:tool_call>", "</seed:tool_call>")
SEED = Markup(
    block=SEED_BLOCK,
    call=_FUNCTION,
    head_end=">",
    argument=_PARAMETER,
    values=(ValueTags("", "</parameter>"),),
)
"""Tags of Seed-OSS."""

MINIMAX_BLOCK = Tags("<minimax:tool_call>", "</minimax:tool_call>")
MINIMAX = Markup(
    block=MINIMAX_BLOCK,
    shared_block=True,
    call=Tags('<invoke name="', "</invoke>"),
    head_end='">',
    argument=Tags('<parameter name="', '">'),
    values=(ValueTags("", "</parameter>"),),
)
"""Tags of MiniMax M2."""

PARAM = '<param name="'
_PARAM_END = "</param>"

MINICPM = Markup(
    block=None,
    call=Tags('<function name="', "</function>"),
    head_end='">',
    argument=Tags(PARAM, '">'),
    values=(
        ValueTags("<![CDATA[", f"]]>{_PARAM_END}", frozenset({"string"})),
        ValueTags("", _PARAM_END, plain=r"[^<&\n]*"),
    ),
    between_arguments="",
    inner_tokens=("<function", "</function>", "<param", _PARAM_END),
)
"""Tags of MiniCPM5. A text with line breaks or characters of markup has further tags around it."""

DSML = "\uff5cDSML\uff5c"
FUNCTION_CALLS = "function_calls"


def dsml(block: str) -> Markup:
    """Return the tags of DeepSeek V3.2 and V4, which differ in the name of the block."""
    return Markup(
        block=Tags(f"<{DSML}{block}>", f"</{DSML}{block}>"),
        shared_block=True,
        call=Tags(f'<{DSML}invoke name="', f"</{DSML}invoke>"),
        head_end='">',
        argument=Tags(f'<{DSML}parameter name="', '" string="'),
        values=(
            ValueTags('true">', f"</{DSML}parameter>", frozenset({"string"})),
            ValueTags('false">', f"</{DSML}parameter>", _NO_STRING),
        ),
        inner_tokens=(DSML,),
        calls_end_reasoning=True,
    )


class TagCalls(TaggedFormat):
    """Format of the models with these tags."""

    def __init__(self, special_tokens: Mapping[str, int], reasoning_tags: Tags | None, markup: Markup) -> None:
        super().__init__(special_tokens, reasoning_tags)
        self._markup = markup
        self.nested_values = markup.nested
        self.opening = (markup.block or markup.call).opening
        self.inner_tokens, self.calls_end_reasoning = markup.inner_tokens, markup.calls_end_reasoning

    @override
    def readers(self, tools: Mapping[str, Signature]) -> Mapping[str, Reader]:
        call = self._markup.call.opening
        one = partial(_read_call, markup=self._markup, tools=tools)
        return {self.opening: partial(read_marked, marker=call, one=one), call: one}  # one key if there is no block

    @override
    def calls(self, rules: Rules, tools: Sequence[Tool], *, parallel: bool) -> str:
        markup, line = self._markup, self._markup.between_calls
        written = [_call(rules, tool, markup) for tool in tools]
        if markup.block is None:
            return rules.several(written, rules.text(line, markup.call.opening), parallel=parallel)
        head, end = rules.text(line, markup.call.opening), rules.text(line, markup.block.closing)
        if markup.shared_block:
            return f"{rules.several([f'{head} {call}' for call in written], '', parallel=parallel)} {end}"
        closed = [f"{head} {call} {end}" for call in written]
        return rules.several(closed, rules.text(line, markup.block.opening), parallel=parallel)

    @override
    def called(self, rules: Rules, tools: Sequence[Tool], *, parallel: bool) -> str:
        """As `TaggedFormat`, also for a call without the first tag of its block."""
        enclosed, markup = super().called(rules, tools, parallel=parallel), self._markup
        if markup.block is None:
            return enclosed
        call = either([_call(rules, tool, markup) for tool in tools])
        end = rules.text(markup.between_calls, markup.block.closing)
        return f"({enclosed} | {rules.until(markup.call.opening)} {call} ({end})?)"


def _read_call(source: Source, out: Output, *, markup: Markup, tools: Mapping[str, Signature]) -> Reading[None]:
    """Read a call after its opening, and the block's closing tag if it follows. Models may forget the call's."""
    name = yield from source.word(_NAME)
    if name not in tools:
        raise Malformed
    if markup.index and (yield from source.follows(markup.index)):
        yield from source.word(_INDEX)
    yield from source.expect(markup.head_end)
    writer = ArgumentsWriter(source, out, tools[name])
    yield from source.skip_whitespace()
    argument, block_end = markup.argument.opening, markup.block.closing if markup.block else markup.call.closing
    while (end := (yield from source.expect(argument, markup.call.closing, block_end))) == argument:
        yield from _read_argument(source, out, markup, tools[name], writer)
        yield from source.skip_whitespace()
    writer.end()
    if markup.block and end != block_end:
        yield from source.skip_whitespace()
        yield from source.closing(block_end)


def _read_argument(
    source: Source, out: Output, markup: Markup, tool: Signature, writer: ArgumentsWriter
) -> Reading[None]:
    source.hold(len(markup.argument.opening))
    name = yield from source.word(_NAME)
    if markup.nested and name.startswith("/"):  # it is the closing tag of another element
        raise Truncated if source.finished() else Malformed
    yield from source.expect(markup.argument.closing)
    start = yield from source.expect(*[tags.opening for tags in markup.values])
    source.commit()
    tags = next(tags for tags in markup.values if tags.opening == start)
    closing, types = tags.closing, _declared(tool.types_of(name), tags.types)
    if markup.nested:
        writer.key(name)
        shape = Shape(tool.parameters, tool.parameters).member(name)
        yield from NestedReader(source, out, markup.argument, tags).read(name, shape)
    elif markup.own_lines:
        yield from source.follows(_NEWLINE)
        yield from read_argument(source, out, writer, name, types, (_NEWLINE + closing, closing))
    else:
        yield from read_argument(source, out, writer, name, types, (closing,))


def _declared(types: ArgumentTypes, declared: ArgumentTypes) -> ArgumentTypes:
    """Return the types that remain of a schema's where a tag declares some.

    The schema decides where the tag contradicts it.
    """
    return types & declared or types or declared


def _call(rules: Rules, tool: Tool, markup: Markup) -> str:
    """Return the expression for a call after its opening."""
    line = _NEWLINE if markup.own_lines else ""

    def argument(name: str) -> tuple[str, str]:
        return markup.between_arguments, f"{markup.argument.opening}{name}{markup.argument.closing}"

    names = _ELEMENTS if markup.nested else _NAME
    written = text_arguments(rules, tool, names, argument, markup.values, line)
    index = f"{rules.text(markup.index)} /[0-9]{{1,4}}/" if markup.index else ""
    head = f"{rules.text(tool.name)} {index} {rules.text(markup.head_end)}"
    return f"{head} {written} {rules.text(markup.between_arguments, markup.call.closing)}"
