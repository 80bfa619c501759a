"""Zhipu's GLM 4.5 and later, with tags that Hunyuan shares.

A call is `<tool_call>`, the name, for each argument `<arg_key>`, its name, `</arg_key>`, `<arg_value>`, its text,
`</arg_value>`, then `</tool_call>`. Newlines separate these parts before GLM 4.7, which has no newlines.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from typing_extensions import override

from gateway.chat.formats.format import WHITESPACE, TaggedFormat
from gateway.chat.formats.lark import Rules, either
from gateway.chat.formats.output import Output
from gateway.chat.formats.parameters import ArgumentsWriter, read_argument
from gateway.chat.formats.parser import Reader, Tags, read_marked
from gateway.chat.formats.signature import Signature
from gateway.chat.formats.source import Malformed, Reading, Source, Truncated
from gateway.chat.formats.text_arguments import ValueTags, text_arguments
from gateway.chat.tools import Tool

KEY = "<arg_key>"
_NEWLINE = "\n"
_NAME = re.compile(r"[^<\s]*")
_ARGUMENTS = re.compile(r"(?!\s)[^<]*(?<!\s)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """Tags of a family."""

    call: Tags
    """Tags around a call."""
    key: Tags
    """Tags around the name of an argument."""
    value: ValueTags
    """Tags around its value."""
    block: Tags | None = None
    """Tags around all calls, if there are any."""
    name_end: str = ""
    """Tag behind the name of the function, if there is one."""


def tags_of(name: str, suffix: str = "") -> Tags:
    """Return the tags of a name, which a suffix ends."""
    return Tags(f"<{name}{suffix}>", f"</{name}{suffix}>")


def marks_of(suffix: str = "", block: Tags | None = None, name_end: str = "") -> Marks:
    """Return the tags of a family, whose names a suffix ends."""
    value = tags_of("arg_value", suffix)
    return Marks(
        call=tags_of("tool_call", suffix),
        key=tags_of("arg_key", suffix),
        value=ValueTags(value.opening, value.closing),
        block=block,
        name_end=name_end,
    )


_GLM = marks_of()


class Glm(TaggedFormat):
    """Format of GLM."""

    calls_end_reasoning = True

    def __init__(self, special_tokens: Mapping[str, int], reasoning_tags: Tags | None, marks: Marks = _GLM) -> None:
        super().__init__(special_tokens, reasoning_tags)
        self._marks = marks
        self.opening = (marks.block or marks.call).opening

    @override
    def readers(self, tools: Mapping[str, Signature]) -> Mapping[str, Reader]:
        opening = self._marks.call.opening
        one = partial(_read_call, marks=self._marks, tools=tools)
        return {self.opening: partial(read_marked, marker=opening, one=one), opening: one}  # one key without a block

    @override
    def calls(self, rules: Rules, tools: Sequence[Tool], *, parallel: bool) -> str:
        opening = rules.text(self._marks.call.opening)
        calls = rules.several([self._call(rules, tool) for tool in tools], f"{WHITESPACE} {opening}", parallel=parallel)
        if self._marks.block is None:
            return calls
        return f"{rules.text(_NEWLINE)} {opening} {calls} {rules.text(_NEWLINE, self._marks.block.closing)}"

    @override
    def called(self, rules: Rules, tools: Sequence[Tool], *, parallel: bool) -> str:
        """As `TaggedFormat`, also for a call without the first tag of its block."""
        enclosed, block = super().called(rules, tools, parallel=parallel), self._marks.block
        if block is None:
            return enclosed
        call, end = either([self._call(rules, tool) for tool in tools]), rules.text(_NEWLINE, block.closing)
        return f"({enclosed} | {rules.until(self._marks.call.opening)} {call} ({end})?)"

    def _call(self, rules: Rules, tool: Tool) -> str:
        key, end = self._marks.key, self._marks.name_end

        def head(name: str) -> tuple[str, ...]:
            return _NEWLINE, key.opening, name, key.closing, _NEWLINE

        written = text_arguments(rules, tool, _ARGUMENTS, head, (self._marks.value,))
        name = f"{rules.text(tool.name)} {f'({rules.text(end)})?' if end else ''}"
        return f"{name} {written} {rules.text(_NEWLINE, self._marks.call.closing)}"


def _read_call(source: Source, out: Output, *, marks: Marks, tools: Mapping[str, Signature]) -> Reading[None]:
    yield from source.skip_whitespace()
    name = yield from source.word(_NAME)
    yield from source.skip_whitespace()
    if name not in tools or (yield from source.peek()) not in ("<", ""):
        raise Malformed
    if source.finished():
        raise Truncated
    if marks.name_end and (yield from source.follows(marks.name_end)):
        yield from source.skip_whitespace()
    writer = ArgumentsWriter(source, out, tools[name])
    ends = (marks.call.closing, marks.call.opening, *((marks.block.closing,) if marks.block else ()))
    while (end := (yield from source.expect(marks.key.opening, *ends))) == marks.key.opening:
        yield from _read_argument(source, out, marks, tools[name], writer)
        yield from source.skip_whitespace()
    writer.end()
    if end == marks.call.opening:  # the model forgot to close this call
        source.put_back(len(end))
    elif marks.block and end == marks.call.closing:
        yield from source.skip_whitespace()
        yield from source.closing(marks.block.closing)


def _read_argument(
    source: Source, out: Output, marks: Marks, tool: Signature, writer: ArgumentsWriter
) -> Reading[None]:
    source.hold(len(marks.key.opening))
    parts: list[str] = []
    if (yield from source.until((marks.key.closing,), parts.append)) is None:
        raise Truncated
    yield from source.skip_whitespace()
    yield from source.expect(marks.value.opening)
    source.commit()
    name = "".join(parts).strip()
    yield from read_argument(source, out, writer, name, tool.types_of(name), (marks.value.closing,))
