"""Grammars of single families: what a model writes beside its calls, and how it writes values."""

import pytest

from engine import Grammar, GrammarKind
from gateway.chat.deltas import CallBegan
from gateway.chat.formats import Format
from gateway.chat.tools import Tool
from tests.gateway.chat.formats.cases import TEMPLATES
from tests.gateway.chat.formats.forced_calls import (
    CALLS,
    COHERE_VOCABULARY,
    MINICPM_VOCABULARY,
    VOCABULARIES,
    call_text,
)
from tests.gateway.chat.formats.parsing import STRICT, TOOLS, choose, grammar_of, parse
from tests.grammar_matching import Vocabulary
from tests.repeat import first


def _format(family: str, vocabulary: Vocabulary) -> Format:
    return choose(TEMPLATES[family], vocabulary.special_tokens)


@pytest.fixture(params=first(1, VOCABULARIES))
def vocabulary(request: pytest.FixtureRequest) -> Vocabulary:
    return VOCABULARIES[request.param]


@pytest.mark.parametrize("vocabulary", [MINICPM_VOCABULARY, VOCABULARIES["text"]], ids=["tokens", "text"])
def test_minicpm_writes_a_text_with_markup_between_further_tags(vocabulary: Vocabulary) -> None:
    unit = {"enum": ["km", "mile"]}
    properties = {"text": {"type": "string"}, "unit": unit, "days": {"type": "integer"}, "any": {}}
    tool = Tool("f", parameters={"properties": properties})
    chosen = _format("minicpm", vocabulary)
    grammar = grammar_of(chosen, [tool], "required", parallel=True, thinking=True)

    def allowed(name: str, value: str) -> bool:
        call = f'<function name="f"><param name="{name}">{value}</param></function>'
        text = f"Hm.</think>\n\n{call}\n{call}"
        if not vocabulary.allows(grammar, text):
            return False
        assert CallBegan(1, "f") in parse(chosen, [text], tools=[tool], thinking=True)
        return True

    for value in ("", "Oslo", "<![CDATA[]]>", "<![CDATA[a\n<b> & ]]</c>]]>"):
        assert allowed("text", value)
        assert allowed("any", value)
    assert not any(allowed("text", value) for value in ("a\nb", "<b>", "a & b", "<![CDATA[a"))
    assert all(allowed("unit", value) for value in ("km", "<![CDATA[mile]]>"))
    assert allowed("days", "5")
    assert not any(allowed(name, "five") for name in ("unit", "days"))


def test_kimi_k3_calls_after_a_response(vocabulary: Vocabulary) -> None:
    thoughts, end = "Hm.<|close|>think<|sep|>", "<|close|>message<|sep|>"
    call, right, wrong = CALLS["kimi-k3"]
    chosen = _format("kimi-k3", vocabulary)
    forced = grammar_of(chosen, TOOLS, "required", parallel=True, thinking=True)
    free = grammar_of(chosen, STRICT, "auto", parallel=True, thinking=True)

    def answer(text: str, *calls: str) -> str:
        called = call_text("kimi-k3", *calls) if calls else ""
        return f"{thoughts}<|open|>response<|sep|>{text}<|close|>response<|sep|>{called}"

    assert vocabulary.allows(forced, answer("", call, call))
    assert not vocabulary.allows(forced, answer("It rains.", call))
    assert vocabulary.allows(free, answer("It rains.") + end)
    assert vocabulary.allows(free, answer("I look.", call, call) + end)
    assert not vocabulary.allows(free, answer("I look.", call.replace(right, wrong)) + end)


@pytest.mark.parametrize("pair", [("<|START_RESPONSE|>", "<|END_RESPONSE|>"), ("<|START_TEXT|>", "<|END_TEXT|>")])
@pytest.mark.parametrize("vocabulary", [COHERE_VOCABULARY, VOCABULARIES["text"]], ids=["tokens", "text"])
def test_cohere_writes_marks_around_an_answer(pair: tuple[str, str], vocabulary: Vocabulary) -> None:
    opening, closing = pair
    call, right, wrong = CALLS["cohere"]
    thoughts, called = "Hm.<|END_THINKING|>", call_text("cohere", call)
    chosen = _format("cohere", vocabulary)
    for parallel in (True, False):
        free = grammar_of(chosen, STRICT, "auto", parallel=parallel, thinking=True)
        answers = ("It rains.", f"{opening}It rains.{closing}", f"{opening}It rains.", called)
        assert all(vocabulary.allows(free, thoughts + answer) for answer in answers)
        assert not vocabulary.allows(free, f"{thoughts}{opening}I look.{called.replace(right, wrong)}")
    forced = grammar_of(chosen, TOOLS, "required", parallel=True, thinking=True)
    assert not vocabulary.allows(forced, f"{thoughts}{opening}{called}")
    bound = chosen.answer_grammar(Grammar(GrammarKind.JSON_SCHEMA, '{"type": "integer"}'), thinking=True)
    assert all(vocabulary.allows(bound, thoughts + answer) for answer in ("42", f"{opening}42{closing}"))
    assert not vocabulary.allows(bound, f"{thoughts}{opening}fortytwo{closing}")


def test_functionary_answers_and_calls_with_their_recipients(vocabulary: Vocabulary) -> None:
    call, right, wrong = CALLS["functionary-3.2"]
    chosen = _format("functionary-3.2", vocabulary)
    for parallel in (True, False):
        grammar = grammar_of(chosen, STRICT, "auto", parallel=parallel)
        assert vocabulary.allows(grammar, f"all\nI look.>>>{call}")
        assert vocabulary.allows(grammar, f"all\nI look.>>>{call}>>>{call}") is parallel
        assert vocabulary.allows(grammar, "all\n>>> print(1)")
        assert not vocabulary.allows(grammar, f"all\nI look.>>>{call.replace(right, wrong)}")
    answer = chosen.answer_grammar(Grammar(GrammarKind.JSON_SCHEMA, '{"type": "integer"}'), thinking=False)
    assert vocabulary.allows(answer, "all\n42")
    assert vocabulary.allows(answer, "42")
    assert not vocabulary.allows(answer, "all\nfortytwo")
    gbnf = Grammar(GrammarKind.GBNF, 'root ::= "a"')
    assert chosen.answer_grammar(gbnf, thinking=False) is gbnf


def test_muse_answers_before_it_calls(vocabulary: Vocabulary) -> None:
    call, right, wrong = CALLS["muse"]
    chosen = _format("muse", vocabulary)
    thoughts, before = "Hm.<|eom|><|start|>assistant", " to=user<|message|>I look.<|eom|><|start|>assistant"
    for parallel in (True, False):
        grammar = grammar_of(chosen, STRICT, "auto", parallel=parallel, thinking=True)
        assert vocabulary.allows(grammar, f"{thoughts}{before}{call}")
        assert vocabulary.allows(grammar, f"{thoughts}{before}{call_text('muse', call, call)}") is parallel
        assert not vocabulary.allows(grammar, f"{thoughts}{before}{call.replace(right, wrong)}")
        assert not vocabulary.allows(grammar, f"{thoughts}{call.replace('get_weather', 'now', 1)}")
    gbnf = Grammar(GrammarKind.GBNF, 'root ::= "a"')
    assert chosen.answer_grammar(gbnf, thinking=False) is gbnf
    answer = chosen.answer_grammar(Grammar(GrammarKind.JSON_SCHEMA, '{"type": "integer"}'), thinking=False)
    assert vocabulary.allows(answer, "42")


@pytest.mark.parametrize(
    ("family", "text"),
    [
        ("llama", "[get_weather(city={})]"),
        ("llama", '[{{"name": "get_weather", "parameters": {{"city": {}}}}}]'),
        ("llama-pythonic", '{{"name": "get_weather", "parameters": {{"city": {}}}}}'),
        ("llama-pythonic", "<|python_start|>[get_weather(city={})]<|python_end|>"),
        ("granite", '<tool_call>[{{"name": "get_weather", "arguments": {{"city": {}}}}}]'),
    ],
)
def test_a_strict_tool_is_not_called_in_another_form_with_other_types(family: str, text: str) -> None:
    for name, vocabulary in VOCABULARIES.items():
        if "<|" in text and name == "text":  # where these are no tokens, they are no marks of the model
            continue
        grammar = grammar_of(choose(TEMPLATES[family], vocabulary.special_tokens), STRICT, "auto", parallel=True)
        assert not vocabulary.allows(grammar, text.format("5"))
    assert parse(choose(TEMPLATES[family]), [text.format("5")], tools=STRICT)[0] == CallBegan(0, "get_weather")
