"""JSON schemas for generation: their texts match the original schema, and end."""

import contextlib
import gc
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from engine import Grammar, GrammarKind, strict_schema
from engine.sampling.grammar import to_lark
from engine.sampling.grammar_bounds import GrammarError
from engine.sampling.json_schemas import closed
from tests.grammar_matching import Vocabulary

VOCABULARY = Vocabulary()
PERSON = {"properties": {"name": {"type": "string"}, "age": {"type": "integer"}}, "required": ["name"]}
OPEN = {"type": "object", "properties": {"a": {}}}


def allows(schema: object, *values: object) -> bool:
    """Return whether a schema allows each of some values."""
    grammar = Grammar(GrammarKind.JSON_SCHEMA, json.dumps(schema))
    return all(VOCABULARY.allows(grammar, json.dumps(value)) for value in values)


def refusal(schema: object) -> str:
    """Return why llguidance refuses a schema; empty if it does not."""
    return VOCABULARY.refusal(Grammar(GrammarKind.JSON_SCHEMA, json.dumps(schema)))


@pytest.mark.parametrize(
    "schema",
    [
        PERSON,
        {"type": "object", **PERSON},
        {"type": ["object", "null"], **PERSON},
        {"$ref": "#/$defs/Person", "$defs": {"Person": PERSON}},
        {"anyOf": [PERSON, {"type": "null"}]},
        {"allOf": [PERSON], "description": "as pydantic writes a reference with a default"},
    ],
)
def test_an_object_has_only_the_properties_that_its_schema_names(schema: dict[str, Any]) -> None:
    assert allows(schema, {"name": "Ann"}, {"name": "Ann", "age": 3})
    assert not allows(schema, {"name": "Ann", "size": 3})


def test_objects_within_others_are_closed_too() -> None:
    listed = {"type": "array", "items": {"type": "object", "properties": {"a": OPEN}}}
    assert allows(listed, [{"a": {"a": 1}}])
    assert not allows(listed, [{"b": 1}])
    assert not allows(listed, [{"a": {"b": 1}}])


def test_an_object_without_named_properties_is_free() -> None:
    assert allows({"type": "object"}, {}, {"a": {"b": 1}})
    assert not allows({"type": "object", "properties": {}}, {"a": 1})
    assert not allows({"type": "object", "patternProperties": {"^a": {}}}, {"b": 1})


@pytest.mark.parametrize(
    "schema",
    [
        {**OPEN, "additionalProperties": True},
        {**OPEN, "required": ["a", "b"]},
        {**OPEN, "required": ["a"], "minProperties": 2},
        {"allOf": [OPEN, {"type": "object", "properties": {"b": {}}, "required": ["b"]}]},
        {"$ref": "#/$defs/Base", "properties": {"b": {}}, "$defs": {"Base": OPEN}},
        {**OPEN, "if": {"required": ["a"]}, "then": {"properties": {"b": {}}}},
    ],
)
def test_an_object_stays_open_where_it_must(schema: dict[str, Any]) -> None:
    assert refusal(schema) == ""
    assert allows(schema, {"a": 1, "b": 2})


@pytest.mark.parametrize(
    ("bounds", "within", "outside"),
    [
        ({}, [0, -1, 9 * 10**18, -(9 * 10**18)], [10**19, -(10**19)]),
        ({"minimum": 1}, [1, 9 * 10**18], [0, 10**19]),
        ({"exclusiveMaximum": 0}, [-1, -(9 * 10**18)], [0, -(10**19)]),
        ({"minimum": 1, "maximum": 5}, [1, 5], [0, 6]),
        ({"multipleOf": 7, "minimum": 8}, [14, 7 * 10**17], [7, 15, 7 * 10**19]),
    ],
)
def test_an_integer_has_at_most_nineteen_digits(bounds: dict[str, int], within: list[int], outside: list[int]) -> None:
    schema = {"type": "integer", **bounds}
    assert allows(schema, *within)
    assert not any(allows(schema, value) for value in outside)


LEAST, GREATEST = -(2**63), 2**63 - 1


@pytest.mark.parametrize("kind", ["integer", "number"])
@pytest.mark.parametrize(
    ("bounds", "within", "outside"),
    [
        ({"minimum": LEAST, "maximum": GREATEST}, [0, -(9 * 10**18), 9 * 10**18], ["a"]),
        ({"exclusiveMinimum": -1.7976931348623157e308, "maximum": 5}, [5, -(9 * 10**18)], [6]),
        ({"minimum": 0, "exclusiveMaximum": 2**64}, [0, 9 * 10**18], [-1]),
    ],
)
def test_bounds_of_every_number_of_a_programming_language_are_no_bounds(
    kind: str, bounds: dict[str, float], within: list[int], outside: list[object]
) -> None:
    schema = {"type": kind, **bounds}
    assert allows(schema, *within)
    assert not any(allows(schema, value) for value in outside)


@pytest.mark.parametrize(
    ("bounds", "end", "inside"),
    [
        ({"exclusiveMinimum": 0, "maximum": 0.5}, 0, [0.001, 0.4, 0.5]),
        ({"exclusiveMinimum": 0.0, "exclusiveMaximum": 0.01}, 0, [0.0005]),
        ({"exclusiveMinimum": 1, "maximum": 1.5, "minimum": -3}, 1, [1.001, 1.5]),
        ({"exclusiveMinimum": 1, "maximum": 1.5, "minimum": 1.25}, 1, [1.251, 1.5]),
        ({"minimum": -1.5, "exclusiveMaximum": -1}, -1, [-1.001, -1.5]),
    ],
    ids=str,
)
def test_a_whole_number_that_ends_a_range_within_one_unit_is_excluded(
    bounds: dict[str, float], end: int, inside: list[float]
) -> None:
    schema = {"type": "number", **bounds}
    assert allows(schema, *inside)
    assert allows(strict_schema(schema), *inside)
    assert not allows(schema, end)
    assert not allows(strict_schema(schema), end)


def test_a_strict_schema_keeps_the_wide_bounds_of_numbers_that_are_no_integers() -> None:
    with pytest.raises(GrammarError, match="less than"):
        refusal(strict_schema({"type": "number", "minimum": -1e300}))
    assert refusal(strict_schema({"type": "integer", "minimum": LEAST, "maximum": GREATEST})) == ""


IDS = [2**53 + 1, 1234567890123456789]


@pytest.mark.parametrize("schema", [{"const": IDS[0]}, {"enum": IDS}, {"type": "integer", "enum": [*IDS, 3]}], ids=str)
def test_a_constant_that_would_be_rounded_is_left_out_unless_the_schema_is_strict(schema: dict[str, Any]) -> None:
    properties = {"type": "object", "properties": {"id": schema}}
    assert allows(properties, {"id": IDS[0]}, {"id": 3})
    assert not allows(properties, {"id": "x"})
    with pytest.raises(GrammarError, match="rounded"):
        refusal(strict_schema(properties))


def test_a_constant_within_other_values_that_would_be_rounded_is_left_out() -> None:
    assert allows({"enum": [{"ids": IDS}, "a"]}, {"ids": IDS}, "b")


@pytest.mark.parametrize("value", [2**53, -(2**53), 2**60, 10**22, 0.1, True])
def test_a_constant_that_is_a_double_is_enforced(value: float) -> None:
    schema = strict_schema({"const": value})
    assert allows(schema, value)
    assert not allows(schema, 5)


@pytest.mark.parametrize("value", [2**63, 2**70, 2**2000], ids=["2**63", "2**70", "2**2000"])
def test_a_large_constant_that_would_lose_its_last_digits_is_left_out(value: int) -> None:
    assert allows({"const": value}, 7)
    with pytest.raises(GrammarError, match="rounded"):
        refusal(strict_schema({"const": value}))


@pytest.mark.parametrize("complete", [dict, strict_schema])
def test_numbers_that_limit_no_text_may_have_any_size(complete: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    count = {"type": "integer", "minimum": LEAST, "default": LEAST, "examples": [LEAST]}
    schema = {
        "type": "object",
        "properties": {"default": count},
        "required": ["default"],
        "default": {"default": LEAST},
    }
    assert allows(complete(schema), {"default": 3})
    assert not allows(complete(schema), {"default": "x"})


def test_equal_integers_share_a_definition() -> None:
    properties = {f"p{at}": {"type": "integer", "description": f"the {at}th"} for at in range(9)}
    made = closed({"properties": {**properties, "q": {"type": "integer", "minimum": 0}}, "$defs": {"own": {}}})
    assert len(made["$defs"]) == 3
    assert made["properties"]["p3"]["description"] == "the 3th"


def test_multiples_of_large_or_many_numbers_are_left_as_they_are() -> None:
    properties = {f"p{at}": {"type": "integer", "multipleOf": 100 + at} for at in range(9)}
    assert closed({"properties": dict(properties)})["properties"] == properties


def test_integers_of_a_schema_with_parts_of_their_own_are_left_as_they_are() -> None:
    inner = {"$id": "http://x/inner", "properties": {"b": {"type": "integer"}}}
    assert allows({"properties": {"a": inner}}, {"a": {"b": 1}})


@pytest.mark.parametrize("depth", range(950, 1000))
def test_a_schema_that_is_too_deep_is_refused(depth: int) -> None:
    source = 'start: %json {"items":' + '{"items":' * depth + "{}" + "}" * depth + "}"
    gc.disable()  # finalizers of other tests' objects would find no stack
    try:
        with contextlib.suppress(GrammarError):
            assert to_lark(Grammar(GrammarKind.LARK, source))
    finally:
        gc.enable()


UNENFORCED = [
    {"type": "string", "format": "password"},
    {"type": "string", "pattern": "^(?!x)y"},
    {"type": "array", "uniqueItems": True},
    {"not": {"type": "string"}},
    {"type": "object", "propertyNames": {"pattern": "^a"}},
    {"type": "array", "contains": {"type": "integer"}},
    {"oneOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}]},
]


@pytest.mark.parametrize("schema", UNENFORCED)
def test_what_cannot_be_enforced_is_left_out_unless_the_schema_is_strict(schema: dict[str, Any]) -> None:
    assert refusal(schema) == ""
    assert refusal(strict_schema(schema)) != ""


def test_options_of_the_schema_stay() -> None:
    compact = {"type": "array", "x-guidance": {"whitespace_flexible": False}}
    assert closed(dict(compact))["x-guidance"].keys() == {"whitespace_flexible", "lenient", "coerce_one_of"}
    assert refusal(strict_schema({**compact, "uniqueItems": True})) != ""
    assert "x-guidance" in refusal({"type": "array", "x-guidance": 5})


_SCHEMAS = st.recursive(
    st.sampled_from([{"type": "integer"}, {"type": "integer", "minimum": 0}, {"type": "null"}, True, {}, 7, [], "x"]),
    lambda inner: st.dictionaries(
        st.sampled_from(["a", "properties", "items", "anyOf", "allOf", "$defs", "required", "minProperties", "$ref"]),
        inner | st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner),
        max_size=4,
    ),
    max_leaves=12,
)


@given(schema=_SCHEMAS.filter(lambda schema: isinstance(schema, dict)))
def test_whatever_a_schema_holds_it_is_closed_without_an_error(schema: dict[str, Any]) -> None:
    assert closed(json.loads(json.dumps(schema))).keys() >= {"x-guidance"}


_VALUES = st.dictionaries(st.sampled_from(["a", "b", "c"]), st.integers(-3, 3) | st.just("x"), max_size=3)
_OBJECTS = st.fixed_dictionaries(
    {"type": st.just("object")},
    optional={
        "properties": st.dictionaries(
            st.sampled_from("ab"), st.sampled_from([{}, {"type": "integer"}, {"type": "integer", "minimum": 0}])
        ),
        "required": st.lists(st.sampled_from("abc"), unique=True, max_size=2),
        "additionalProperties": st.sampled_from([True, False, {"type": "string"}]),
    },
)


@given(schema=_OBJECTS, value=_VALUES)
def test_what_a_closed_schema_allows_the_original_one_allows_too(schema: dict[str, Any], value: dict[str, Any]) -> None:
    if refusal(schema) == "" and allows(schema, value):
        assert Draft202012Validator(schema).is_valid(value)
