"""Every family's parser, fed whole texts, tokens, characters and noise."""

import json
import random
import re
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.chat.deltas import CallArguments, CallBegan, ContentDelta, Delta
from tests.gateway.chat.formats.case import Case, wide
from tests.gateway.chat.formats.cases import CASES, TEMPLATES
from tests.gateway.chat.formats.parsing import SIGNATURES, choose, joined, parse, weather
from tests.repeat import TIMES, repeated

_TOKEN = re.compile(r"<[^<>]*>|\[[A-Z/]+\]|\s?\w{1,5}|\s+|.", re.DOTALL)

_SCRAPS = [
    *("<tool_call>", "</tool_call>", "<think>", "</think>", "<function=now>", "<function=get_weather>", "</function>"),
    *("<parameter=city>", "</parameter>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "<|python_tag|>"),
    *("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "[THINK]", "[/THINK]", "<start_function_call>", "<end_function_call>"),
    *("<|tool_call>", "<tool_call|>", "<|channel>thought", "<channel|>", '<|"|>', "<escape>", "call:now{", "call:"),
    *map(wide, ("<|tool▁calls▁begin|>", "<|tool▁call▁begin|>", "<|tool▁sep|>", "<|tool▁call▁end|>")),
    *("<minimax:tool_call>", '<invoke name="now">', '<parameter name="city">', "</invoke>", "<seed:tool_call>"),
    *('<function name="get_weather">', '<param name="city">', "<![CDATA[", "]]>", "</param>"),
    *("<|open|>tools<|sep|>", '<|open|>call tool="now"', ' index="1"', "<|open|>", "<|close|>", "<|sep|>"),
    *("]<]minimax[>[<tool_call>", ']<]minimax[>[<invoke name="get_weather">', "]<]minimax[>[<", "/tags>", "item>"),
    *("<tool_calls:opensource>", "<tool_call:opensource>", "<tool_sep:opensource>", "</tool_call:opensource>"),
    *("<arg_key:opensource>", "</arg_key:opensource>", "<arg_value:opensource>", "</arg_value:opensource>"),
    *(
        "<|think|>",
        "<|content|>",
        "<|tool_call:begin|>",
        "<|tool_call:name|>",
        "<|tool_call:args|>",
        "<|tool_call:end|>",
    ),
    *("<function_calls>", "</function_calls>"),
    *(" to=self", " to=now", "<|eom|>", "<atem:function_calls>", '<atem:invoke name="now">', "</atem:invoke>"),
    *("<TOOLCALL>[", "]</TOOLCALL>", "<tool_calls>[", "<|tool_call|>[", "<|tool_call_start|>[", "<|tool_call_end|>"),
    *("<|tool_calls_section_begin|>", "<|tool_call_begin|>", "functions.now:0", "<|tool_call_argument_begin|>"),
    *map(wide, ("<|DSML|function_calls>", '<|DSML|invoke name="get_weather">', '" string="false">', "</|DSML|invoke>")),
    *(
        "<|start|>assistant",
        "<|channel|>",
        "analysis",
        "commentary to=functions.now ",
        "final",
        "<|message|>",
        "<|end|>",
    ),
    *(
        "<|call|>",
        "<|constrain|>",
        "```tool_code\n",
        "```json\n",
        "```",
        "get_weather",
        "now",
        "now(",
        "get_weather(city=",
    ),
    *('{"name": "now", "arguments": ', '{"name": "get_weather", "parameters": {"city": ', "{", "}", "[", "]", "(", ")"),
    *(
        '"',
        "'",
        "\\",
        ":",
        ",",
        "; ",
        "=",
        "\n",
        " ",
        "1",
        "-",
        "1.5e",
        "true",
        "None",
        "é",
        "\U0001f600",
        "\\u00",
        "<",
    ),
]


_SAME_BUT_FOR_MARKERS = {"apriel", "granite", "dsml", "seed", "hunyuan"}
"""Families that share the reader of another."""


def _cuts(text: str) -> list[list[str]]:
    """Return the text whole, by tokens such as models have, by characters, and at random."""
    chance = random.Random(text)
    ways = [[text], _TOKEN.findall(text), list(text)]
    for _ in range(5):
        places = sorted(chance.sample(range(len(text) + 1), k=min(len(text), chance.randint(1, 12))))
        ways.append([text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True)])
    return ways


def _arguments(deltas: Sequence[Delta]) -> list[str]:
    """Return the arguments of each call."""
    texts = ["" for delta in deltas if isinstance(delta, CallBegan)]
    for delta in deltas:
        if isinstance(delta, CallArguments):
            texts[delta.index] += delta.text
    return texts


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_text_has_the_same_deltas_at_any_cut(case: Case) -> None:
    chosen = choose(TEMPLATES[case.family])
    for pieces in _cuts(case.text):
        assert parse(chosen, pieces, thinking=case.thinking) == case.deltas, pieces


_KIMI_CALL = (
    '<|tool_call_begin|> functions.get_weather:0 <|tool_call_argument_begin|> {"city": "Oslo"} <|tool_call_end|>'
)
_OBJECT = '{"name": "get_weather", "arguments": {"city": "Oslo"}}'


@pytest.mark.parametrize(
    ("family", "text"),
    [
        ("hermes", f"<tool_call> {_OBJECT}\n\n</tool_call>"),
        ("kimi", f"<|tool_calls_section_begin|>\n{_KIMI_CALL}\n<|tool_calls_section_end|>"),
        ("apertus", '<|tools_prefix|> [ { "get_weather" : {"city": "Oslo"} } ] <|tools_suffix|>'),
        ("nemotron", f"<TOOLCALL>\n[\n{_OBJECT}\n]\n</TOOLCALL>"),
        ("glm", "<tool_call> get_weather\n<arg_key> city </arg_key> <arg_value>Oslo</arg_value>\n\n</tool_call>"),
        (
            "deepseek",
            wide('<|tool▁calls▁begin|>\n<|tool▁call▁begin|>get_weather<|tool▁sep|> {"city": "Oslo"} <|tool▁call▁end|>'),
        ),
        ("mistral", '[TOOL_CALLS] get_weather [ARGS] {"city": "Oslo"}'),
        ("mistral-listed", f"[TOOL_CALLS] [ {_OBJECT} ]"),
        ("llama", f"<|python_tag|> {_OBJECT}"),
        ("llama", '<|python_tag|>[ get_weather( city = "Oslo" ) ]'),
        ("functionary", '<function=get_weather> {"city": "Oslo"} </function>'),
        ("functionary-3.2", 'get_weather\n {"city": "Oslo"}'),
        ("gigachat", f"<|function_call|>\n{_OBJECT}"),
    ],
)
def test_whitespace_between_markers_belongs_to_them(family: str, text: str) -> None:
    chosen = choose(TEMPLATES[family])
    assert parse(chosen, [text]) == parse(chosen, list(text)) == weather()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_truncated_text_has_a_prefix_of_the_deltas(case: Case) -> None:
    """Calls and reasoning are never taken back; content that comes early is the call's own text."""
    chosen = choose(TEMPLATES[case.family])
    for length in range(len(case.text)):
        parser = chosen.parser(tools=SIGNATURES, thinking=case.thinking)
        before = joined(parser.feed(case.text[:length]))
        whole = parse(chosen, [case.text[:length], case.text[length:]], thinking=case.thinking)
        assert _begins(before, whole), (case.text[:length], before)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_call_is_cut_if_its_arguments_are_not_whole(case: Case) -> None:
    chosen = choose(TEMPLATES[case.family])
    for length in range(len(case.text) + 1):
        parser = chosen.parser(tools=SIGNATURES, thinking=case.thinking)
        deltas = [*parser.feed(case.text[:length]), *parser.finish()]
        cut = {index for index, text in enumerate(_arguments(deltas)) if not _is_json(text)}
        assert set(parser.cut_calls) == cut, case.text[:length]


def _begins(before: Sequence[Delta], whole: Sequence[Delta]) -> bool:
    if not before:
        return True
    *firsts, last = before
    if list(whole[: len(firsts)]) != firsts or len(whole) <= len(firsts) or type(whole[len(firsts)]) is not type(last):
        return False
    same = whole[len(firsts)]
    return str(getattr(same, "text", "")).startswith(getattr(last, "text", ""))


@pytest.mark.parametrize("family", sorted(set(TEMPLATES) - _SAME_BUT_FOR_MARKERS))
@given(data=st.data())
@settings(max_examples=15 * TIMES)
@repeated
def test_noise_raises_no_exception_and_loses_no_text(family: str, data: st.DataObject) -> None:
    text = "".join(data.draw(st.lists(st.one_of(st.sampled_from(_SCRAPS), st.text(max_size=3)), max_size=25)))
    thinking = data.draw(st.booleans())
    chosen = choose(TEMPLATES[family])
    whole = parse(chosen, [text], thinking=thinking)
    assert parse(chosen, text, thinking=thinking) == whole
    assert parse(chosen, _TOKEN.findall(text), thinking=thinking) == whole
    _check_calls(whole)
    if (
        family not in {"harmony", "muse", "solar"}
        and all(isinstance(delta, ContentDelta) for delta in whole)
        and not thinking
    ):
        kept = "".join(delta.text for delta in whole if isinstance(delta, ContentDelta))
        assert kept == text or any(tag in text for tag in ("<think>", "[THINK]", "<|channel>thought"))


def _check_calls(deltas: Sequence[Delta]) -> None:
    """Check that calls count from 0 and name offered tools, and that their arguments begin an object."""
    began = [delta for delta in deltas if isinstance(delta, CallBegan)]
    assert [delta.index for delta in began] == list(range(len(began)))
    assert {delta.name for delta in began} <= {tool.name for tool in SIGNATURES}
    texts = [delta for delta in deltas if isinstance(delta, CallArguments)]
    assert [delta.index for delta in texts] == [delta.index for delta in began]
    for delta in texts:
        assert delta.text.startswith("{")
        if _closed(delta.text):
            json.loads(delta.text)


def _closed(text: str) -> bool:
    """Return true if the braces outside strings are balanced."""
    bare = re.sub(r'"(?:[^"\\]|\\.)*"', "", text)
    return '"' not in bare and bare.count("{") == bare.count("}") and bare.count("[") == bare.count("]")


@pytest.mark.parametrize("family", TEMPLATES)
def test_without_tools_every_call_is_content(family: str) -> None:
    for case in CASES:
        if case.family == family and any(isinstance(delta, CallBegan) for delta in case.deltas):
            parsed = parse(choose(TEMPLATES[family]), [case.text], tools=(), thinking=case.thinking)
            assert not any(isinstance(delta, CallBegan | CallArguments) for delta in parsed), case


@pytest.mark.parametrize(
    ("family", "text"),
    [
        ("functionary-3.2", "all\nYes."),
        ("solar", "<|content|>Yes.<|end|>"),
        ("muse", " to=user<|message|>Yes.<|eot|>"),
        ("kimi-k3", "<|open|>response<|sep|>Yes.<|close|>response<|sep|><|close|>message<|sep|>"),
        ("cohere", "<|START_RESPONSE|>Yes.<|END_RESPONSE|>"),
    ],
)
def test_without_tools_an_answer_has_no_marks(family: str, text: str) -> None:
    assert parse(choose(TEMPLATES[family]), [text], tools=()) == [ContentDelta("Yes.")]


def test_an_answer_has_no_marks_where_the_template_has_no_reasoning() -> None:
    bare = choose(TEMPLATES["cohere"].replace("<|START_THINKING|><|END_THINKING|>", ""))
    assert bare.reasoning_tags is None
    assert parse(bare, ["<|START_RESPONSE|>Yes.<|END_RESPONSE|>"], tools=()) == [ContentDelta("Yes.")]


@pytest.mark.parametrize("family", TEMPLATES)
def test_deep_nesting_raises_no_exception(family: str) -> None:
    case = next(case for case in CASES if case.family == family and case.deltas and "call" in case.name)
    for opening in ("[", '{"a":', "{", "<tool_call>", "(("):
        whole = parse(choose(TEMPLATES[family]), [case.text[: len(case.text) // 2] + opening * 2_000])
        _check_calls(whole)
