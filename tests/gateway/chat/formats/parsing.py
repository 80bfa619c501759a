"""Parsers fed with texts cut in pieces."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from engine import Grammar
from gateway.chat.deltas import CallArguments, CallBegan, ContentDelta, Delta, FormatParser, ReasoningDelta
from gateway.chat.formats import Format, create, recognize
from gateway.chat.formats.signature import signature
from gateway.chat.tools import Tool, ToolChoice

TOOLS = (
    Tool(
        "get_weather",
        "The weather somewhere.",
        {
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "days": {"type": "integer"},
                "exact": {"type": "boolean"},
                "tags": {"type": "array", "items": {"type": "string"}},
            },
            "required": ["city"],
        },
    ),
    Tool("now"),
)


STRICT = [replace(tool, strict=True) for tool in TOOLS]
SIGNATURES = tuple(signature(tool, nested=True) for tool in TOOLS)


def cut(text: str, data: st.DataObject) -> list[str]:
    """Return a text in up to six pieces."""
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=5)))
    return [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]


def choose(template: str, special_tokens: Mapping[str, int] | None = None) -> Format:
    """Return the format of the model with this chat template."""
    return create(recognize(template), special_tokens or {})


def grammar_of(
    format_: Format, tools: Sequence[Tool], choice: ToolChoice, *, parallel: bool = False, thinking: bool = False
) -> Grammar:
    """Return the grammar of an answer that has one."""
    grammar = format_.grammar(tools, choice, parallel=parallel, thinking=thinking)
    assert grammar is not None
    return grammar


def parse(
    format_: Format, pieces: Iterable[str], *, tools: Sequence[Tool] = TOOLS, thinking: bool = False
) -> list[Delta]:
    """Return all deltas of a text, neighbours of one kind joined."""
    parser = format_.parser(tools=tuple(signature(tool, nested=True) for tool in tools), thinking=thinking)
    return joined(step for steps in stream(parser, pieces) for step in steps)


def stream(parser: FormatParser, pieces: Iterable[str]) -> list[list[Delta]]:
    """Return the deltas of each piece, and last those of the end."""
    return [*(parser.feed(piece) for piece in pieces), parser.finish()]


def joined(deltas: Iterable[Delta]) -> list[Delta]:
    whole: list[Delta] = []
    for delta in deltas:
        last = whole[-1] if whole else None
        match delta, last:
            case (ContentDelta(text), ContentDelta(before)):
                whole[-1] = ContentDelta(before + text)
            case (ReasoningDelta(text), ReasoningDelta(before)):
                whole[-1] = ReasoningDelta(before + text)
            case (CallArguments(index, text), CallArguments(at, before)) if at == index:
                whole[-1] = CallArguments(index, before + text)
            case _:
                whole.append(delta)
    return whole


def call(index: int, name: str, arguments: str) -> list[Delta]:
    """Return the deltas of a call."""
    return [CallBegan(index, name), CallArguments(index, arguments)]


def read_call(template: str, pieces: Iterable[str], tool: Tool) -> Any:
    """Return the arguments of the only call of a tool."""
    began, given = parse(choose(template), pieces, tools=[tool])
    assert began == CallBegan(0, tool.name)
    assert isinstance(given, CallArguments)
    return json.loads(given.text)


def weather(index: int = 0, city: str = "Oslo") -> list[Delta]:
    return call(index, "get_weather", f'{{"city": "{city}"}}')
