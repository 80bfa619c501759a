"""Grammars that force calls: every text they allow is readable by the parser."""

import json
import random
from dataclasses import replace
from typing import Any

import pytest

from engine import Grammar, GrammarKind, RequestError
from gateway.chat.deltas import CallArguments, CallBegan
from gateway.chat.formats import Format
from gateway.chat.tools import Named, Tool
from tests.gateway.chat.formats.case import wide
from tests.gateway.chat.formats.cases import TEMPLATES
from tests.gateway.chat.formats.forced_calls import CALLS, ENDS, VOCABULARIES, call_text
from tests.gateway.chat.formats.parsing import STRICT, TOOLS, choose, grammar_of, parse
from tests.grammar_matching import Vocabulary
from tests.repeat import first

_BEFORE_ANSWERS = {
    "harmony": "<|channel|>final<|message|>",
    "muse": " to=user<|message|>",
    "solar": "<|content|>",
    "functionary-3.2": "all\n",
}


def _format(family: str, vocabulary: Vocabulary) -> Format:
    return choose(TEMPLATES[family], vocabulary.special_tokens)


@pytest.fixture(params=first(1, VOCABULARIES))
def vocabulary(request: pytest.FixtureRequest) -> Vocabulary:
    return VOCABULARIES[request.param]


@pytest.mark.parametrize("family", TEMPLATES)
def test_a_demanded_call_is_written_as_the_family_writes_it(family: str, vocabulary: Vocabulary) -> None:
    chosen = _format(family, vocabulary)
    call, right, wrong = CALLS[family]
    for choice in ("required", Named("get_weather")):
        grammar = grammar_of(chosen, TOOLS, choice)
        assert vocabulary.allows(grammar, call_text(family, call))
        assert not vocabulary.allows(grammar, call_text(family, call.replace(right, wrong, 1)))
        assert not vocabulary.allows(grammar, "It rains.")
        assert not vocabulary.allows(grammar, "")
    assert CallBegan(0, "get_weather") in parse(chosen, [call_text(family, call)])


_IN_JSON = [
    "hermes",
    "plain",
    "llama",
    "mistral",
    "mistral-listed",
    "deepseek",
    "deepseek-typed",
    "harmony",
    "kimi",
    "nemotron",
]


@pytest.mark.parametrize("family", _IN_JSON)
def test_arguments_have_one_blank_or_a_line_break_and_an_indentation_between_tokens(
    family: str, vocabulary: Vocabulary
) -> None:
    grammar = grammar_of(_format(family, vocabulary), TOOLS, "required")

    def allowed(whitespace: str) -> bool:
        call = CALLS[family][0].replace('"city": ', f'"city":{whitespace}')
        return vocabulary.allows(grammar, call_text(family, call))

    assert all(allowed(whitespace) for whitespace in ("", " ", "\n", "\n" + 20 * " "))
    assert not any(allowed(whitespace) for whitespace in ("  ", "\t", " \n", "\n\n", "\n" + 21 * " "))


@pytest.mark.parametrize("family", ["hermes", "harmony"])
def test_an_answer_in_json_after_reasoning_has_the_same_bound(family: str, vocabulary: Vocabulary) -> None:
    chosen = _format(family, vocabulary)
    final = "<|channel|>final<|message|>" if family == "harmony" else ""
    for source, longest in (('{"type": "object"}', 21), ('{"x-guidance": {"whitespace_pattern": "\\n {1,4}"}}', 5)):
        grammar = chosen.answer_grammar(Grammar(GrammarKind.JSON_SCHEMA, source), thinking=False)
        assert vocabulary.allows(grammar, final + '{"a":\n' + (longest - 1) * " " + "1}")
        assert not vocabulary.allows(grammar, final + '{"a":\n' + longest * " " + "1}")


@pytest.mark.parametrize("parameters", [{}, {"type": "object"}, {"type": "object", "properties": {}}])
@pytest.mark.parametrize("family", ["hermes", "mistral"])
def test_a_function_without_parameters_has_no_arguments(
    family: str, parameters: dict[str, Any], vocabulary: Vocabulary
) -> None:
    tools = [Tool("get_weather", parameters=parameters)]
    grammar = grammar_of(_format(family, vocabulary), tools, "required")
    call = CALLS[family][0]
    given = call[call.index('{"city') : call.index("}") + 1]
    assert vocabulary.allows(grammar, call_text(family, call.replace(given, "{}")))
    assert not vocabulary.allows(grammar, call_text(family, call))


@pytest.mark.parametrize("family", TEMPLATES)
def test_a_strict_tool_is_refused_if_its_schema_cannot_be_enforced(family: str, vocabulary: Vocabulary) -> None:
    chosen = _format(family, vocabulary)
    tool = Tool("tag", parameters={"type": "object", "properties": {"names": {"type": "array", "uniqueItems": True}}})
    lenient = grammar_of(chosen, [tool], "required")
    strict = grammar_of(chosen, [replace(tool, strict=True)], "required")
    assert vocabulary.refusal(lenient) == ""
    assert "uniqueItems" in vocabulary.refusal(strict)


@pytest.mark.parametrize("family", TEMPLATES)
def test_a_named_choice_excludes_other_tools(family: str, vocabulary: Vocabulary) -> None:
    grammar = grammar_of(_format(family, vocabulary), TOOLS, Named("now"))
    assert not vocabulary.allows(grammar, call_text(family, CALLS[family][0]))


@pytest.mark.parametrize("family", sorted(set(TEMPLATES) - {"harmony"}))
def test_several_calls_are_allowed_only_on_request(family: str, vocabulary: Vocabulary) -> None:
    text = call_text(family, *[CALLS[family][0]] * 2)
    for parallel in (True, False):
        grammar = grammar_of(_format(family, vocabulary), TOOLS, "required", parallel=parallel)
        assert vocabulary.allows(grammar, text) is parallel
    began = [delta for delta in parse(choose(TEMPLATES[family]), [text]) if isinstance(delta, CallBegan)]
    assert [delta.index for delta in began] == [0, 1]


@pytest.mark.parametrize("family", TEMPLATES)
def test_a_free_choice_without_strict_schemas_has_no_grammar(family: str) -> None:
    chosen = choose(TEMPLATES[family])
    assert chosen.grammar(TOOLS, "auto", parallel=True, thinking=False) is None
    assert chosen.grammar(TOOLS, "none", parallel=True, thinking=False) is None


@pytest.mark.parametrize("family", TEMPLATES)
def test_a_strict_tool_constrains_calls_only(family: str, vocabulary: Vocabulary) -> None:
    chosen = _format(family, vocabulary)
    call, right, wrong = CALLS[family]
    answer = f"{_BEFORE_ANSWERS.get(family, '')}It rains."
    for parallel in (True, False):
        grammar = grammar_of(chosen, STRICT, "auto", parallel=parallel)
        assert vocabulary.allows(grammar, answer)
        assert vocabulary.allows(grammar, call_text(family, call))
        assert not vocabulary.allows(grammar, call_text(family, call.replace(right, wrong, 1)))


@pytest.mark.parametrize(
    "family", ["hermes", "qwen-coder", "glm", "mistral", "deepseek", "gemma-4", "dsml", "kimi", "kimi-k3", "minimax-m3"]
)
def test_text_may_come_before_a_strict_call(family: str, vocabulary: Vocabulary) -> None:
    text = f"I look.\n{call_text(family, CALLS[family][0])}"
    for parallel in (True, False):
        grammar = grammar_of(_format(family, vocabulary), STRICT, "auto", parallel=parallel)
        assert vocabulary.allows(grammar, text)
        assert vocabulary.allows(grammar, f"{text}\n{text}") is (parallel and family != "kimi-k3")


@pytest.mark.parametrize("family", ["qwen-coder", "seed", "minimax", "dsml"])
def test_a_strict_call_without_its_block_is_constrained(family: str, vocabulary: Vocabulary) -> None:
    """Models omit the block's tags, and the parser reads such calls."""
    chosen = _format(family, vocabulary)
    call, right, wrong = CALLS[family]
    bare = call[call.index("<function=") : call.index("\n</tool_call>")] if family == "qwen-coder" else call
    bare = bare.removeprefix("<seed:tool_call>\n").removesuffix("\n</seed:tool_call>")
    assert CallBegan(0, "get_weather") in parse(chosen, [f"I look.\n{bare}"])
    for parallel in (True, False):
        grammar = grammar_of(chosen, STRICT, "auto", parallel=parallel)
        assert vocabulary.allows(grammar, f"I look.\n{bare}")
        assert vocabulary.allows(grammar, f"I look.\n{call_text(family, call)}")
        for text in (bare, call_text(family, call)):
            assert not vocabulary.allows(grammar, f"I look.\n{text.replace(right, wrong)}")


@pytest.mark.parametrize(
    ("family", "before"),
    [
        ("hermes", "<think>\nHm.\n</think>\n\n"),
        ("mistral", "[THINK]Hm.[/THINK]"),
        ("minimax-m3", "<mm:think>Hm.</mm:think>"),
        ("minimax-m3", "</mm:think>"),
        ("kimi-k3", "<|open|>think<|sep|>Hm.<|close|>think<|sep|><|open|>response<|sep|>"),
        ("gemma-4", "<|channel>thought\nHm.<channel|>"),
        ("harmony", "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant"),
        ("muse", " to=self<|message|>Hm.<|eom|><|start|>assistant"),
        ("solar", "<|think|>Hm.<|end|><|begin|>assistant"),
    ],
)
def test_reasoning_may_come_before_a_demanded_call_and_a_bound_answer(
    family: str, before: str, vocabulary: Vocabulary
) -> None:
    chosen = _format(family, vocabulary)
    call = grammar_of(chosen, TOOLS, "required")
    assert vocabulary.allows(call, before + call_text(family, CALLS[family][0]))
    final = _BEFORE_ANSWERS.get(family, "")
    for answer in (
        Grammar(GrammarKind.JSON_SCHEMA, '{"type": "integer"}'),
        Grammar(GrammarKind.REGEX, r"4[1-3]|a/b"),
        Grammar(GrammarKind.LARK, 'start: number\nnumber: /4/ "2"'),
    ):
        grammar = chosen.answer_grammar(answer, thinking=False)
        assert vocabulary.allows(grammar, f"{before}{final}42")
        assert vocabulary.allows(grammar, f"{final}42")
        assert not vocabulary.allows(grammar, f"{before}{final}fortytwo")


@pytest.mark.parametrize(
    ("family", "ended", "final"),
    [
        ("deepseek", "Hm.</think>", "\n\n"),
        ("harmony", "Hm.<|end|><|start|>assistant", "<|channel|>final<|message|>"),
        ("muse", "Hm.<|eom|><|start|>assistant", " to=user<|message|>"),
        ("solar", "Hm.<|end|><|begin|>assistant", "<|content|>"),
    ],
)
def test_reasoning_that_the_prompt_began_must_end_first(
    family: str, ended: str, final: str, vocabulary: Vocabulary
) -> None:
    chosen = _format(family, vocabulary)
    grammar = chosen.answer_grammar(Grammar(GrammarKind.JSON_SCHEMA, '{"type": "integer"}'), thinking=True)
    assert vocabulary.allows(grammar, f"{ended}{final}42")
    assert not vocabulary.allows(grammar, f"{final}42")
    call = grammar_of(chosen, TOOLS, "required", thinking=True)
    assert vocabulary.allows(call, ended + call_text(family, CALLS[family][0]))
    assert not vocabulary.allows(call, call_text(family, CALLS[family][0]))


@pytest.mark.parametrize(
    ("family", "answer"),
    [
        ("plain", Grammar(GrammarKind.GBNF, 'root ::= "a"')),
        ("plain", Grammar(GrammarKind.REGEX, "a")),
        ("hermes", Grammar(GrammarKind.GBNF, 'root ::= "a"')),
    ],
)
def test_the_grammar_of_an_answer_stays_if_no_reasoning_can_precede_it(family: str, answer: Grammar) -> None:
    assert choose(TEMPLATES[family]).answer_grammar(answer, thinking=False) is answer


def test_gbnf_cannot_follow_reasoning() -> None:
    answer = Grammar(GrammarKind.GBNF, 'root ::= "a"')
    with pytest.raises(RequestError) as caught:
        choose(TEMPLATES["hermes"]).answer_grammar(answer, thinking=True)
    assert caught.value.param == "grammar"


@pytest.mark.parametrize(
    ("family", "ended"),
    [
        ("qwen-coder", "\n</parameter>"),
        ("seed", "</parameter>"),
        ("minimax", "</parameter>"),
        ("minicpm", "]]></param>"),
        ("kimi-k3", "<|close|>argument<|sep|>"),
        ("minimax-m3", "]<]minimax[>[</city>"),
        ("dsml", wide("</|DSML|parameter>")),
    ],
)
def test_a_text_cannot_hold_the_tag_that_ends_it(family: str, ended: str, vocabulary: Vocabulary) -> None:
    """The parser would end the argument there."""
    grammar = grammar_of(_format(family, vocabulary), TOOLS, "required")
    assert vocabulary.allows(grammar, call_text(family, CALLS[family][0].replace("Oslo", "Os<x></x>\n\nlo")))
    assert not vocabulary.allows(grammar, call_text(family, CALLS[family][0].replace("Oslo", f"Os{ended}lo")))


def _dsml(tool: str, argument: str, declared: str, value: str) -> str:
    """Return a call with one argument."""
    written = f'<|DSML|parameter name="{argument}" string="{declared}">{value}</|DSML|parameter>'
    return call_text("dsml", wide(f'<|DSML|invoke name="{tool}">\n{written}\n</|DSML|invoke>'))


def test_a_value_of_any_type_is_declared_as_text_or_as_json(vocabulary: Vocabulary) -> None:
    tool = Tool("f", parameters={"properties": {"x": {"type": ["string", "integer"]}}, "required": ["x"]})
    grammar = grammar_of(_format("dsml", vocabulary), [tool], "required")

    def allowed(declared: str, value: str) -> bool:
        return vocabulary.allows(grammar, _dsml("f", "x", declared, value))

    assert allowed("true", "five")
    assert allowed("false", "5")
    assert not allowed("false", "five")


def test_a_listed_value_is_declared_by_its_type(vocabulary: Vocabulary) -> None:
    tool = Tool("f", parameters={"properties": {"x": {"enum": ["km", None]}}, "required": ["x"]})
    grammar = grammar_of(_format("dsml", vocabulary), [tool], "required")
    assert vocabulary.allows(grammar, _dsml("f", "x", "true", "km"))
    assert vocabulary.allows(grammar, _dsml("f", "x", "false", "null"))
    assert not vocabulary.allows(grammar, _dsml("f", "x", "true", "null"))


def test_optional_arguments_are_listed_in_order_or_left_out(vocabulary: Vocabulary) -> None:
    tool = Tool("f", parameters={"properties": {name: {"type": "integer"} for name in "abc"}})
    grammar = grammar_of(_format("llama-pythonic", vocabulary), [tool], "required")
    for arguments in ("", "a=1", "b=1", "c=1", "a=1, c=1", "b=1, c=1", "a=1, b=1, c=1"):
        assert vocabulary.allows(grammar, f"[f({arguments})]")
    for arguments in ("b=1, a=1", ", b=1", "a=1, ", "a=1, a=1"):
        assert not vocabulary.allows(grammar, f"[f({arguments})]")


def test_arguments_are_an_object_also_if_their_schema_allows_other_types(vocabulary: Vocabulary) -> None:
    tool = Tool("get_weather", parameters={"type": ["string", "object"], "properties": {"city": {}}})
    grammar = grammar_of(_format("hermes", vocabulary), [tool], "required")
    call = call_text("hermes", CALLS["hermes"][0])
    assert vocabulary.allows(grammar, call)
    assert not vocabulary.allows(grammar, call.replace('{"city": "Oslo"}', '"Oslo"'))


def test_a_required_call_without_a_tool_is_refused() -> None:
    for choice in ("required", Named("rm")):
        with pytest.raises(RequestError) as caught:
            choose("").grammar((), choice, parallel=True, thinking=False)
        assert caught.value.param == "tool_choice"


@pytest.mark.parametrize("limited", [{"pattern": "^a+$"}, {"maxLength": 3}])
@pytest.mark.parametrize("family", ["qwen-coder", "glm", "gemma-4"])
def test_a_strict_limit_on_bare_text_is_refused(family: str, limited: dict[str, Any]) -> None:
    text = {"type": "string", **limited}
    nullable = [] if family == "gemma-4" else [{"anyOf": [{"$ref": "#/$defs/text"}, {"type": "null"}]}]
    for schema in (text, {"$ref": "#/$defs/text"}, *nullable):
        tool = Tool("f", parameters={"$defs": {"text": text}, "properties": {"id": schema}})
        assert choose(TEMPLATES[family]).grammar([tool], "required", parallel=True, thinking=False) is not None
        with pytest.raises(RequestError) as caught:
            choose(TEMPLATES[family]).grammar([replace(tool, strict=True)], "required", parallel=True, thinking=False)
        assert caught.value.param == "tools"


@pytest.mark.parametrize("properties", [["x"], {"x": True}])
@pytest.mark.parametrize("family", ["qwen-coder", "lfm2"])
def test_properties_that_are_no_object_of_schemas_are_refused(family: str, properties: object) -> None:
    tool = Tool("f", parameters={"properties": properties})
    with pytest.raises(RequestError) as caught:
        choose(TEMPLATES[family]).grammar([tool], "required", parallel=True, thinking=False)
    assert caught.value.param == "tools"


def test_an_unknown_type_is_refused_also_where_no_tag_declares_it(vocabulary: Vocabulary) -> None:
    tool = Tool("f", parameters={"properties": {"x": {"type": "int"}}})
    grammar = grammar_of(_format("dsml", vocabulary), [tool], "required", parallel=True)
    assert "int" in vocabulary.refusal(grammar)


@pytest.mark.parametrize(
    ("family", "names", "others"),
    [
        *(
            (family, ("a b", "$a", "/a"), ("a<b", "a>b", 'a"b', "a\nb", ""))
            for family in ("qwen-coder", "seed", "minimax", "minicpm", "dsml", "kimi-k3")
        ),
        ("minimax-m3", ("a b", "$a"), ("a<b", "a>b", "/a", "")),
        ("glm", ("a b", "a\nb", 'a"b', "a>b"), ("a<b", " a", "a\n")),
        *((family, ("$a", "@a.b-c"), ("a b", "a:b", "a=b", "")) for family in ("llama-pythonic", "lfm2", "gemma-4")),
        ("hermes", ("a<b", 'a"b', "a\nb", ""), ()),
    ],
)
def test_an_argument_whose_name_would_not_be_read_is_refused(
    family: str, names: tuple[str, ...], others: tuple[str, ...], vocabulary: Vocabulary
) -> None:
    chosen = _format(family, vocabulary)
    for name in names + others:
        tool = Tool("f", parameters={"properties": {name: {"const": 1}}, "required": [name]})
        if name in others:
            with pytest.raises(RequestError) as caught:
                chosen.grammar([tool], "required", parallel=False, thinking=False)
            assert caught.value.param == "tools"
        else:
            grammar = grammar_of(chosen, [tool], "required")
            chance = random.Random(name)
            text = next(filter(None, (vocabulary.sample(grammar, chance, ENDS) for _ in range(9))))
            *_, arguments = parse(chosen, [text], tools=[tool])
            assert isinstance(arguments, CallArguments)
            assert json.loads(arguments.text) == {name: 1}


def test_a_limit_on_a_number_beside_a_text_is_no_limit_on_the_text() -> None:
    either = {"anyOf": [{"type": "string"}, {"type": "integer", "format": "int64"}]}
    tool = Tool("f", parameters={"properties": {"id": either}}, strict=True)
    assert choose(TEMPLATES["glm"]).grammar([tool], "required", parallel=True, thinking=False) is not None


@pytest.mark.parametrize(
    ("schema", "right", "wrong"),
    [
        ({"enum": ["km", "mile"]}, ["km", "mile"], ["yard", "null", ""]),
        ({"enum": ["km", ""]}, ["km", ""], ["mile"]),
        ({"type": "string", "const": "km"}, ["km"], ["mile"]),
        ({"const": 5}, ["5"], ["6", "five"]),
        ({"enum": ["km", 5, None, True]}, ["km", "5", "null", "true"], ["6", "yard"]),
        ({"type": ["string", "null"], "enum": ["km", None]}, ["km", "null"], ["yard"]),
        ({"anyOf": [{"type": "string", "enum": ["km"]}, {"type": "null"}]}, ["km", "null"], ["yard"]),
        ({"oneOf": [{"const": "km"}, {"$ref": "#/$defs/unit"}]}, ["km", "mile"], ["yard"]),
        ({"$ref": "#/$defs/unit"}, ["mile"], ["yard"]),
        ({"allOf": [{"$ref": "#/$defs/unit"}], "default": "mile"}, ["mile"], ["yard"]),
        ({"$ref": "#/$defs/level"}, ["3"], ["4", "high"]),
        ({"anyOf": [{"const": "km"}, {"type": "string"}]}, ["km", "yard"], []),
        ({"type": "string", "enum": [1]}, ["1"], []),
    ],
)
@pytest.mark.parametrize("family", ["glm", "dsml"])
def test_listed_values_and_references_are_kept_to_without_quotes(
    family: str, schema: dict[str, Any], right: list[str], wrong: list[str], vocabulary: Vocabulary
) -> None:
    parameters = {
        "$defs": {"level": {"type": "integer", "maximum": 3}, "unit": {"enum": ["mile"]}},
        "properties": {"x": schema},
        "required": ["x"],
    }
    tool = Tool("f", parameters=parameters, strict=True)
    grammar = grammar_of(_format(family, vocabulary), [tool], "required")

    def allowed(value: str) -> bool:
        if family == "glm":
            return vocabulary.allows(
                grammar, f"<tool_call>f\n<arg_key>x</arg_key>\n<arg_value>{value}</arg_value>\n</tool_call>"
            )
        return any(vocabulary.allows(grammar, _dsml("f", "x", kind, value)) for kind in ("true", "false"))

    assert [value for value in right + wrong if allowed(value)] == right
