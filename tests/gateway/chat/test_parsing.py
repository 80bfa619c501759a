"""Parsers that are made from their descriptions."""

import pytest

from gateway.chat.deltas import CallArguments, CallBegan, ContentDelta, Delta, ReasoningDelta
from gateway.chat.formats import recognize
from gateway.chat.parsing import ParserKey
from tests.gateway.chat.formats.cases import TEMPLATES
from tests.gateway.chat.formats.parsing import SIGNATURES, joined, weather

_CALL = '<tool_call>{"name": "get_weather", "arguments": {"city": "Oslo"}}</tool_call>'
_CUT = len('"}}</tool_call>')


@pytest.mark.parametrize(
    ("text", "one_call", "cut_calls", "calls"),
    [
        (f"{_CALL}{_CALL}", False, set(), 2),
        (f"{_CALL}{_CALL}", True, set(), 1),
        (f"{_CALL}{_CALL}"[:-_CUT], False, {1}, 2),
        (f"{_CALL}{_CALL}"[:-_CUT], True, set(), 1),
        (_CALL[:-_CUT], True, {0}, 1),
    ],
)
def test_only_the_first_call_counts_where_one_is_allowed(
    text: str, one_call: bool, cut_calls: set[int], calls: int
) -> None:
    key = ParserKey(format=recognize(TEMPLATES["hermes"]), tools=SIGNATURES, thinking=False, one_call=one_call)
    parser = key.parser()
    deltas = joined([*parser.feed(f"I look. {text}"), *parser.finish()])
    assert set(parser.cut_calls) == cut_calls
    assert deltas[0] == ContentDelta("I look.")
    assert len(deltas) == 1 + 2 * calls
    assert 0 in cut_calls or deltas[1:3] == weather()


@pytest.mark.parametrize(
    ("inline", "begin"),
    [(False, [ReasoningDelta("Hm."), ContentDelta("I look.")]), (True, [ContentDelta("<think>Hm.</think>I look.")])],
)
def test_a_parser_is_made_for_custom_tools_and_for_reasoning_in_the_content(inline: bool, begin: list[Delta]) -> None:
    key = ParserKey(
        format=recognize(TEMPLATES["hermes"]),
        tools=SIGNATURES,
        thinking=True,
        one_call=False,
        custom=("now",),
        inline=inline,
    )
    parser = key.parser()
    custom = '<tool_call>{"name": "now", "arguments": {"input": "a\\nb"}}</tool_call>'
    deltas = joined([*parser.feed(f"Hm.</think>I look. {_CALL}{custom}"), *parser.finish()])
    assert deltas == [*begin, *weather(), CallBegan(1, "now", custom=True), CallArguments(1, "a\nb")]


@pytest.mark.parametrize("drafts", [False, True])
def test_a_call_ends_reasoning_unless_it_is_a_draft(drafts: bool) -> None:
    key = ParserKey(
        format=recognize(TEMPLATES["hermes"]), tools=SIGNATURES, thinking=True, one_call=True, drafts=drafts
    )
    parser = key.parser()
    draft = _CALL.replace("Oslo", "Rome")
    deltas = joined([*parser.feed(f"Hm.{draft}</think>{_CALL}"), *parser.finish()])
    thought = ReasoningDelta(f"Hm.{draft}" if drafts else "Hm.")
    assert deltas == [thought, *weather(city="Oslo" if drafts else "Rome")]
