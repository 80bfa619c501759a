"""Bounds on a grammar's source: costly sources are refused before the compiler sees them, usual ones are not."""

import json
from typing import Any

import pytest

from engine import MOST_GRAMMAR_CHARACTERS
from engine.sampling.grammar_bounds import (
    GrammarError,
    check_gbnf,
    check_lark,
    check_regex,
    check_schemas,
    inline_schemas,
)

PATTERNS = [{"pattern": f"{n}$"} for n in range(12)]


@pytest.mark.parametrize(
    "schema",
    [
        {"allOf": PATTERNS},
        {"anyOf": [{"items": {"allOf": PATTERNS}}]},
        {"patternProperties": {f"{n}$": {} for n in range(12)}},
        {"patternProperties": {"a": {}, "b": {}}, "properties": {f"p{n}": {} for n in range(2000)}},
        {"properties": {f"p{n}": {} for n in range(2501)}},
        {"multipleOf": 999_983},
        {"multipleOf": 0.0123457},
        {"allOf": [{"multipleOf": prime} for prime in (97, 89, 83)]},
        {"properties": {f"p{n}": {"multipleOf": 997, "minimum": n} for n in range(100)}},
        {f"$ref{n}": {"$ref": "#", "pattern": f"{n}$"} for n in range(12)},
    ],
    ids=lambda schema: json.dumps(schema)[:40],
)
def test_costly_schemas_are_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(GrammarError):
        check_schemas(schema)
    with pytest.raises(GrammarError):
        check_lark(f'start: "a" %json {json.dumps(schema)} "b"')


@pytest.mark.parametrize(
    "schema",
    [
        True,
        {"multipleOf": 0.01},
        {"multipleOf": 1_000_000_000},
        {"multipleOf": 0, "allOf": "nothing", "properties": []},
        {"properties": {f"p{n}": {"type": "string", "format": "date-time"} for n in range(200)}},
        {"properties": {f"p{n}": {"$ref": f"#/$defs/p{n}", "description": "one"} for n in range(50)}},
        {"properties": {f"p{n}": {"allOf": [{"$ref": "#"}], "title": "one"} for n in range(50)}},
        {"properties": {"pattern": {"type": "string"}, "multipleOf": {"type": "integer"}, "allOf": {"type": "array"}}},
        {"patternProperties": {"^x-": {}}, "properties": {f"p{n}": {} for n in range(300)}},
    ],
    ids=lambda schema: json.dumps(schema)[:40],
)
def test_usual_schemas_are_accepted(schema: object) -> None:
    check_schemas(schema)
    check_lark(f"start: %json {json.dumps(schema)}")


def test_intersections_in_lark_are_refused() -> None:
    with pytest.raises(GrammarError, match="&"):
        check_lark("start: A\nA: /((a|b){997})*/ & /((a|b){991})*/")


def test_the_total_length_of_regular_expressions_is_bounded() -> None:
    half = "a?" * 5_000
    check_regex(half)
    check_lark(f'start: /{half}/ "{half}"')
    check_schemas({"pattern": half})
    with pytest.raises(GrammarError, match="regular expressions"):
        check_regex(half * 2)
    with pytest.raises(GrammarError, match="regular expressions"):
        check_lark(f"start: /{half}/ /{half}/")
    with pytest.raises(GrammarError, match="regular expressions"):
        check_schemas({"properties": {name: {"pattern": half} for name in "ab"}})


def test_an_ampersand_in_a_literal_is_no_intersection() -> None:
    check_lark('start: "&amp;" | "\\"&&" | /[&]&&&\\/&&/ | "&&&" // one "\n')


def test_an_invalid_schema_in_lark_is_left_to_the_compiler() -> None:
    check_lark("start: %json {")
    check_lark("start: %json " + "[" * 50_000)


def test_rules_of_gbnf_are_bounded() -> None:
    check_gbnf("\n".join(f"r{n} ::= r{n + 1}" for n in range(500)))
    with pytest.raises(GrammarError, match="500 rules"):
        check_gbnf("\n".join(f"r{n} ::= r{n + 1}" for n in range(501)))


CHAIN = {"$defs": {f"d{at}": {"items": {"$ref": f"#/$defs/d{at + 1}"}} for at in range(2_001)}, "$ref": "#/$defs/d0"}


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("start: r0\n" + "".join(f"r{at}: r{at + 1}\n" for at in range(4_000)), "4000 rules"),
        ("start: " + "b " * 6_500 + '\nb: "x"?', "names"),
        ("start: " + '"a"? ' * 1_501, "repetitions"),
        ("".join(f'j{at}: %json {{"multipleOf": {19_001 + at}}}\n' for at in range(2)), "multipleOf"),
        (f"start: %json {json.dumps(CHAIN)}", r"2000 \$ref"),
    ],
)
def test_costly_lark_grammars_are_refused(source: str, words: str) -> None:
    with pytest.raises(GrammarError, match=words):
        check_lark(source)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("root ::= " + "b " * 6_500 + '\nb ::= "x" |', "names"),
        ("root ::= " + "[a-z]* " * 1_501, "repetitions"),
        ("root ::= " + " | ".join(f"[a-z{at}]" for at in range(4_001)), "classes"),
    ],
)
def test_costly_gbnf_grammars_are_refused(source: str, words: str) -> None:
    with pytest.raises(GrammarError, match=words):
        check_gbnf(source)


def test_schemas_are_found_only_where_the_compiler_finds_them() -> None:
    source = 'start: "%json {" %json {"const": "%json {}"} /%json {}/ // %json {"a\n | %json true %json {'
    assert [inline.schema for inline in inline_schemas(source)] == [{"const": "%json {}"}, True]


HALF_MOST = MOST_GRAMMAR_CHARACTERS // 2
"""As many pairs of characters as a grammar may have. Steps quadratic in them would take longer than any test may."""


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ('start: "' + '\\"' * HALF_MOST, "no end"),
        ("start: /" + "\\/" * HALF_MOST, "no end"),
        ("start: " + "[a" * HALF_MOST, "names"),
        ("start: " + "%json " * (HALF_MOST // 3), "names"),
        ("start: %json " + "9" * HALF_MOST, "digits"),
    ],
)
def test_hostile_lark_grammars_are_refused_in_linear_time(source: str, words: str) -> None:
    with pytest.raises(GrammarError, match=words):
        check_lark(source)


def test_hostile_grammars_are_checked_in_linear_time() -> None:
    check_lark('start: "a"' + "\n " * HALF_MOST)
    check_lark('start: "a"' + " \n" * HALF_MOST)
    check_lark("start: " + "<a" * (HALF_MOST // 32))
    check_gbnf('root ::= "' + '\\"' * HALF_MOST)
    with pytest.raises(GrammarError, match="classes"):
        check_gbnf("root ::= " + "[\\[" * HALF_MOST)


def test_slashes_and_quotes_in_comments_and_special_tokens_begin_no_literal() -> None:
    check_lark('start: </call> "&" <"> "&" # a "\n// a /\n')


def test_a_regular_expression_may_have_lines() -> None:
    with pytest.raises(GrammarError, match="regular expressions"):
        check_lark(f"start: /{'a' * 16_383}\nb/")
