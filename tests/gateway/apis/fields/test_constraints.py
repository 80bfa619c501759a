"""Fields that constrain the text: their grammars, and their conflicts."""

from typing import Any

import llguidance
import orjson
import pytest
from pydantic import ValidationError

from engine import MOST_GRAMMAR_CHARACTERS, Grammar, GrammarKind, RequestError, strict_schema
from gateway.apis.fields import constraints
from gateway.apis.fields.constraints import GrammarFields

SCHEMA = {"type": "object", "properties": {"b": {"type": "string"}, "a": {"const": "ж"}}}
SOURCE = '{"type":"object","properties":{"b":{"type":"string"},"a":{"const":"ж"}}}'
OBJECT = Grammar(GrammarKind.JSON_SCHEMA, '{"type":"object"}')


def read(**fields: object) -> Grammar | None:
    return GrammarFields.model_validate(fields).constraint()


def refused(**fields: object) -> tuple[str | None, str]:
    """Return the field at fault and the reason."""
    try:
        read(**fields)
    except ValidationError as error:
        fault = error.errors()[0]
        return str(fault["loc"][0]), fault["msg"].removeprefix("Value error, ")
    except RequestError as error:
        return error.param, error.message.removeprefix(f"{error.param}: ")
    pytest.fail("it was not refused")


SCHEMA_FORMS: tuple[dict[str, Any], ...] = (
    {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA, "strict": False}}},
    {"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}},
    {"response_format": {"type": "json_object", "schema": SCHEMA}},
    {"response_format": {"type": "json_schema", "schema": SCHEMA}},
    {"json_schema": SCHEMA},
    {"guided_json": SCHEMA},
    {"guided_json": SOURCE},
    {"structured_outputs": {"json": SCHEMA}},
    {"structured_outputs": {"json": SOURCE}},
)


@pytest.mark.parametrize("fields", SCHEMA_FORMS)
def test_schemas_keep_the_order_of_their_properties(fields: dict[str, Any]) -> None:
    assert read(**fields) == Grammar(GrammarKind.JSON_SCHEMA, SOURCE)


def test_a_strict_schema_must_be_enforced_wholly() -> None:
    strict = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA, "strict": True}}
    assert read(response_format=strict) == constraints.json_schema(strict_schema(SCHEMA))


@pytest.mark.parametrize(
    ("fields", "grammar"),
    [
        ({"response_format": {"type": "json_object"}}, OBJECT),
        ({"response_format": {"type": "json_object", "schema": {}}}, OBJECT),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}}, OBJECT),
        ({"structured_outputs": {"json_object": True}}, OBJECT),
        ({"json_schema": {}}, Grammar(GrammarKind.JSON_SCHEMA, "{}")),
        ({"guided_regex": r"\d+"}, Grammar(GrammarKind.REGEX, r"\d+")),
        ({"regex": r"\d+"}, Grammar(GrammarKind.REGEX, r"\d+")),
        ({"structured_outputs": {"regex": r"\d+"}}, Grammar(GrammarKind.REGEX, r"\d+")),
        ({"guided_choice": ["a", "b"]}, Grammar(GrammarKind.LARK, 'start: "a" | "b"')),
        ({"structured_outputs": {"choice": ["a"]}}, Grammar(GrammarKind.LARK, 'start: "a"')),
        ({"grammar": 'root ::= "a"'}, Grammar(GrammarKind.GBNF, 'root ::= "a"')),
        ({"grammar": '# a comment\n  root-1\t::= "a"'}, Grammar(GrammarKind.GBNF, '# a comment\n  root-1\t::= "a"')),
        ({"grammar": 'start: "a ::= b"'}, Grammar(GrammarKind.LARK, 'start: "a ::= b"')),
        ({"guided_grammar": "%llguidance {}\nstart: /a/"}, Grammar(GrammarKind.LARK, "%llguidance {}\nstart: /a/")),
        ({"ebnf": 'root ::= "a"'}, Grammar(GrammarKind.GBNF, 'root ::= "a"')),
        ({"structured_outputs": {"grammar": 'root ::= "a"'}}, Grammar(GrammarKind.GBNF, 'root ::= "a"')),
    ],
)
def test_every_constraint_field_becomes_a_grammar(fields: dict[str, Any], grammar: Grammar) -> None:
    assert read(**fields) == grammar


@pytest.mark.parametrize(
    "fields", [{}, {"response_format": {"type": "text"}}, {"grammar": ""}, {"guided_json": None, "guided_choice": None}]
)
def test_fields_without_a_constraint_give_no_grammar(fields: dict[str, Any]) -> None:
    body = GrammarFields.model_validate(fields)
    assert body.constraint() is None
    assert body.constrained_by is None


AWKWARD = ["a\nb", 'say "no"', "back\\slash", "ж🐉", "\0\x1f", "/i", "", "\u2028"]


@pytest.mark.parametrize("text", AWKWARD)
def test_a_choice_is_taken_literally(text: str) -> None:
    grammar = read(guided_choice=["other", text])
    assert grammar is not None
    compiled = llguidance.LLMatcher.grammar_from_lark(grammar.source)
    tokenizer = llguidance.LLTokenizer("byte")
    matcher = llguidance.LLMatcher(tokenizer, compiled)
    assert matcher.get_error() == ""
    assert matcher.consume_tokens(tokenizer.tokenize_str(text))
    assert matcher.is_accepting()


def test_a_constraint_may_be_repeated_under_another_name() -> None:
    lark = 'start: "a"'
    assert read(guided_grammar=lark, structured_outputs={"grammar": lark}) == Grammar(GrammarKind.LARK, lark)
    assert refused(guided_grammar=lark, structured_outputs={"regex": lark})[0] == "structured_outputs"


def test_conflicting_constraints_are_refused() -> None:
    assert refused(grammar='start: "a"', json_schema={}) == ("json_schema", "cannot be combined with grammar")
    both = {"response_format": {"type": "json_object"}, "guided_regex": "a"}
    assert refused(**both) == ("guided_regex", "cannot be combined with response_format")
    assert read(response_format={"type": "text"}, guided_regex="a") == Grammar(GrammarKind.REGEX, "a")
    many = "should have one of json, regex, choice, grammar and json_object"
    assert refused(structured_outputs={"json": {}, "regex": "a"}) == ("structured_outputs", many)
    assert refused(structured_outputs={"json_object": False}) == ("structured_outputs", many)


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("response_format", {"type": "json_schema"}, "Field required where the type is json_schema"),
        ("response_format", {"type": "structural_tag"}, "Input should be 'text', 'json_object' or 'json_schema'"),
        ("response_format", {}, "Field required"),
        ("response_format", "json_object", "Input should be"),
        ("response_format", {"type": "json_schema", "json_schema": {"schema": []}}, "Input should be a valid dict"),
        ("structured_outputs", {"structural_tag": "{}"}, "structural_tag is not supported"),
        ("json_schema", "{", "is not valid JSON: "),
        ("json_schema", "[]", "Input should be a valid dictionary"),
        ("guided_json", 5, "Input should be a valid dictionary"),
        ("guided_choice", [], "List should have at least 1 item"),
        ("guided_choice", [1], "Input should be a valid string"),
        ("guided_choice", "a", "Input should be a valid list"),
        ("guided_choice", ["a"] * 1025, "List should have at most 1024 items"),
        (
            "guided_choice",
            ["a" * MOST_GRAMMAR_CHARACTERS],
            f"should be of at most {MOST_GRAMMAR_CHARACTERS} characters",
        ),
        (
            "guided_regex",
            "a" * (MOST_GRAMMAR_CHARACTERS + 1),
            f"String should have at most {MOST_GRAMMAR_CHARACTERS} characters",
        ),
        ("guided_regex", "", "String should have at least 1 character"),
        ("guided_grammar", "", "String should have at least 1 character"),
        ("guided_json", "", "is not valid JSON: "),
        ("json_schema", "", "is not valid JSON: "),
        ("structured_outputs", {"regex": ""}, "String should have at least 1 character"),
        ("structured_outputs", {"grammar": ""}, "String should have at least 1 character"),
        ("grammar", 5, "Input should be a valid string"),
        (
            "json_schema",
            {"title": "a" * MOST_GRAMMAR_CHARACTERS},
            f"should be of at most {MOST_GRAMMAR_CHARACTERS} characters",
        ),
    ],
)
def test_invalid_constraints_are_refused(field: str, value: object, reason: str) -> None:
    at, why = refused(**{field: value})
    assert at == field
    assert why.startswith(reason)


def test_a_schema_that_is_nested_too_deeply_is_refused() -> None:
    deep = orjson.loads(b'{"items":' * 500 + b"{}" + b"}" * 500)
    assert refused(response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": deep}}) == (
        "response_format",
        "cannot be read: Recursion limit reached",
    )


def test_a_refusal_of_the_engine_names_the_field_that_the_client_sent() -> None:
    assert GrammarFields.model_validate({"guided_regex": "a"}).engine_names == {"grammar": "guided_regex"}
    assert GrammarFields.model_validate({}).engine_names == {"grammar": "grammar"}
