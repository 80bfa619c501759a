"""Families with one list of all calls between two tags: Nemotron Nano 2, Apriel, Granite 3.3, LFM2, Apertus.

The list has JSON objects of `name` and `arguments`. LFM2 has calls in Python syntax, Apertus objects whose only key is
the name.
"""

import json
from collections.abc import Mapping, Sequence
from functools import partial

from typing_extensions import override

from gateway.chat.formats.format import TaggedFormat
from gateway.chat.formats.json_calls import json_call, read_object
from gateway.chat.formats.lark import Rules, arguments
from gateway.chat.formats.output import Output
from gateway.chat.formats.parser import Reader, Tags, read_arguments, read_calls
from gateway.chat.formats.python_calls import python_call, read_listed_call
from gateway.chat.formats.signature import Signature
from gateway.chat.formats.source import Malformed, Reading, Source
from gateway.chat.formats.text_calls import IN_LFM2
from gateway.chat.formats.values import read_string
from gateway.chat.tools import Tool

NEMOTRON = Tags("<TOOLCALL>", "</TOOLCALL>")
APRIEL = Tags("<tool_calls>", "</tool_calls>")
GRANITE = Tags("<|tool_call|>", "")
_GRANITE_TEXT = "<tool_call>"
_RESPONSE = Tags("<response>", "</response>")

APRIEL_REASONING = Tags("Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]")
APRIEL_END = f"]{APRIEL.closing}"
"""Text in the templates of Apriel only. MiniMax M1 has the same tags, without a list."""


class ListedCalls(TaggedFormat):
    """Format of the models with a list of JSON objects between `tags`."""

    def __init__(self, special_tokens: Mapping[str, int], reasoning_tags: Tags | None, tags: Tags) -> None:
        super().__init__(special_tokens, reasoning_tags)
        self._tags = tags
        self.opening = tags.opening

    @override
    def readers(self, tools: Mapping[str, Signature]) -> Mapping[str, Reader]:
        return {self.opening: partial(_read_list, one=self.reader(tools), closing=self._tags.closing)}

    @override
    def calls(self, rules: Rules, tools: Sequence[Tool], *, parallel: bool) -> str:
        listed = rules.several([self.call(rules, tool) for tool in tools], '", "', parallel=parallel)
        return f'"[" {listed} {rules.text("]", self._tags.closing)}'

    def reader(self, tools: Mapping[str, Signature]) -> Reader:
        """Return the reader of one call."""
        return partial(read_object, tools=tools)

    def call(self, rules: Rules, tool: Tool) -> str:
        """Return the expression for a call of a tool."""
        return json_call(rules, tool)


class Apriel(ListedCalls):
    """Format of Apriel. Its answer follows its reasoning between marks."""

    marks = ("[END FINAL RESPONSE]",)

    def __init__(self, special_tokens: Mapping[str, int], reasoning_tags: Tags | None) -> None:
        super().__init__(special_tokens, reasoning_tags, APRIEL)


class Granite(ListedCalls):
    """Format of Granite 3. With thinking, the answer stands between tags. Calls may have their token as a text."""

    def __init__(self, special_tokens: Mapping[str, int], reasoning_tags: Tags | None) -> None:
        super().__init__(special_tokens, reasoning_tags, GRANITE)

    @override
    def readers(self, tools: Mapping[str, Signature]) -> Mapping[str, Reader]:
        reader = partial(_read_list, one=self.reader(tools), closing="")
        return {GRANITE.opening: reader, _GRANITE_TEXT: reader}

    @override
    def called(self, rules: Rules, tools: Sequence[Tool], *, parallel: bool) -> str:
        """As `TaggedFormat`, also for calls behind the text."""
        calls = self.calls(rules, tools, parallel=parallel)
        return f"({super().called(rules, tools, parallel=parallel)} | {rules.until(_GRANITE_TEXT)} {calls})"

    @override
    def leading(self, tools: Mapping[str, Signature]) -> Mapping[str, Reader]:
        reader = partial(_read_response, calls=(GRANITE.opening, _GRANITE_TEXT) if tools else ())
        return {_RESPONSE.opening: reader} if self.reasoning_tags else {}


class Lfm2(ListedCalls):
    """Format of LFM2 and LFM2.5."""

    text_calls = IN_LFM2

    def __init__(self, special_tokens: Mapping[str, int], reasoning_tags: Tags | None) -> None:
        super().__init__(special_tokens, reasoning_tags, Tags("<|tool_call_start|>", "<|tool_call_end|>"))

    @override
    def reader(self, tools: Mapping[str, Signature]) -> Reader:
        return partial(read_listed_call, tools=tools)

    @override
    def call(self, rules: Rules, tool: Tool) -> str:
        return python_call(rules, tool)


APERTUS = Tags("<|tools_prefix|>", "<|tools_suffix|>")


class Apertus(ListedCalls):
    """Format of Apertus."""

    def __init__(self, special_tokens: Mapping[str, int], reasoning_tags: Tags | None) -> None:
        super().__init__(special_tokens, reasoning_tags, APERTUS)

    @override
    def reader(self, tools: Mapping[str, Signature]) -> Reader:
        return partial(_read_member, tools=tools)

    @override
    def call(self, rules: Rules, tool: Tool) -> str:
        head = f"{{{json.dumps(tool.name)}: "
        return f"{rules.text(head)} {arguments(tool)} {rules.text('}')}"


LFM2_MARKERS = ("<|tool_list_start|>", "<|tool_call_start|>", "List of tools: [")
"""Texts in the templates of LFM2 and LFM2.5."""


def _read_member(source: Source, out: Output, tools: Mapping[str, Signature]) -> Reading[None]:
    yield from source.expect("{")
    yield from source.skip_whitespace()
    name = yield from read_string(source)
    if name not in tools:
        raise Malformed
    yield from source.skip_whitespace()
    yield from source.expect(":")
    yield from source.skip_whitespace()
    yield from read_arguments(source, out, name)
    yield from source.skip_whitespace()
    yield from source.closing("}")


def _read_response(source: Source, out: Output, *, calls: tuple[str, ...]) -> Reading[None]:
    """Read an answer up to its closing tag, or to a call."""
    source.commit()
    if (marker := (yield from source.until((_RESPONSE.closing, *calls), out.content))) in calls:
        source.put_back(len(marker or ""))


def _read_list(source: Source, out: Output, *, one: Reader, closing: str) -> Reading[None]:
    """Read calls in a list. Models forget its brackets."""
    yield from source.skip_whitespace()
    if (yield from source.follows("[")) is None:
        yield from read_calls(one, source, out, closing=closing)
        return
    yield from read_calls(one, source, out, closing="]")
    yield from source.skip_whitespace()
    yield from source.closing(closing)
