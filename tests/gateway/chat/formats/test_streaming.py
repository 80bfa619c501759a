"""The time of each delta: as early as it is certain."""

import pytest

from gateway.chat.deltas import CallArguments, CallBegan, ContentDelta, ReasoningDelta
from tests.gateway.chat.formats.cases import TEMPLATES
from tests.gateway.chat.formats.parsing import SIGNATURES, choose, stream


def _streamed(family: str, *pieces: str, thinking: bool = False) -> list[list[object]]:
    parser = choose(TEMPLATES[family]).parser(tools=SIGNATURES, thinking=thinking)
    return [list(step) for step in stream(parser, pieces)]


def test_content_waits_only_while_it_may_begin_a_call() -> None:
    deltas = _streamed("hermes", "a <", "b <tool", "box> c")
    assert deltas == [[ContentDelta("a")], [ContentDelta(" <b")], [ContentDelta(" <toolbox> c")], []]


def test_blanks_wait_for_what_follows_them() -> None:
    assert _streamed("hermes", "a\n", "\nb\n") == [[ContentDelta("a")], [ContentDelta("\n\nb")], [ContentDelta("\n")]]


def test_arguments_are_streamed_once_the_name_is_known() -> None:
    deltas = _streamed(
        "hermes", '<tool_call>{"name": "get_weather", ', '"arguments": {"ci', 'ty": "Os', "lo", '"}}</tool_call>'
    )
    assert deltas == [
        [],
        [CallBegan(0, "get_weather"), CallArguments(0, '{"ci')],
        [CallArguments(0, 'ty": "Os')],
        [CallArguments(0, "lo")],
        [CallArguments(0, '"}')],
        [],
    ]


def test_strings_of_other_notations_are_streamed() -> None:
    deltas = _streamed(
        "qwen-coder", "<function=get_weather>", "\n<parameter=city>\nO", "s\n", "lo\n</para", "meter></function>"
    )
    assert deltas == [
        [CallBegan(0, "get_weather"), CallArguments(0, "{")],
        [CallArguments(0, '"city": "O')],
        [CallArguments(0, "s")],
        [CallArguments(0, "\\nlo")],
        [CallArguments(0, '"}')],
        [],
    ]


def test_a_string_between_tags_is_streamed() -> None:
    deltas = _streamed(
        "minimax",
        '<minimax:tool_call><invoke name="get_weather"><parameter name="ci',
        'ty">O',
        "s<",
        "lo</",
        "parameter>",
    )
    assert deltas == [
        [CallBegan(0, "get_weather"), CallArguments(0, "{")],
        [CallArguments(0, '"city": "O')],
        [CallArguments(0, "s")],
        [CallArguments(0, "<lo")],
        [CallArguments(0, '"')],
        [],
    ]


def test_a_value_of_another_type_waits_for_its_end() -> None:
    deltas = _streamed("glm", "<tool_call>get_weather<arg_key>days</arg_key><arg_value>1", "2</arg_value>")
    assert deltas[:2] == [[CallBegan(0, "get_weather"), CallArguments(0, '{"days": ')], [CallArguments(0, "12")]]


def test_reasoning_is_streamed() -> None:
    deltas = _streamed("hermes", "Hm", ", so", "</think>", "\n\nYes", thinking=True)
    assert deltas == [[ReasoningDelta("Hm")], [ReasoningDelta(", so")], [], [ContentDelta("Yes")], []]


def test_an_answer_in_json_is_held_back_only_until_its_first_key() -> None:
    assert _streamed("llama", '{"a', 'nswer": 1', "}") == [[], [ContentDelta('{"answer": 1')], [ContentDelta("}")], []]


@pytest.mark.parametrize("piece", ["", "\n"])
def test_text_without_tools_and_reasoning_is_streamed_at_once(piece: str) -> None:
    parser = choose("").parser(tools=(), thinking=False)
    assert stream(parser, [f"a <tool_call>{piece}"]) == [[ContentDelta(f"a <tool_call>{piece}")], []]


@pytest.mark.parametrize(("family", "text"), [("hermes", "<tool_call>{"), ("llama", '{"name": "no')])
def test_text_like_a_call_is_streamed_at_once_if_no_tools_are_offered(family: str, text: str) -> None:
    parser = choose(f"{TEMPLATES[family]}</think>").parser(tools=(), thinking=False)
    assert stream(parser, [text]) == [[ContentDelta(text)], []]
