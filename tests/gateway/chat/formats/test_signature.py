"""The types of a tool's arguments, by every way in which a schema can name them."""

from typing import Any

import pytest

from gateway.chat.formats.signature import Shape, signature
from gateway.chat.tools import Tool

NODE: dict[str, Any] = {"anyOf": [{"$ref": "#/$defs/node"}] * 20}
DEFINITIONS: dict[str, Any] = {"n": {"type": "number"}, "a/b~c": {"type": "null"}, "node": NODE, "own": {"$ref": "#"}}


@pytest.mark.parametrize(
    ("schema", "types"),
    [
        ({"type": "string"}, {"string"}),
        ({"type": ["string", "null"]}, {"string", "null"}),
        ({"enum": ["a", "b"]}, {"string"}),
        ({"enum": ["a", 1, None]}, {"string", "integer", "null"}),
        ({"enum": [1.5, True, [], {}]}, {"number", "boolean", "array", "object"}),
        ({"enum": []}, set()),
        ({"enum": "a"}, set()),
        ({"const": "a"}, {"string"}),
        ({"$ref": "#/$defs/n"}, {"number"}),
        ({"$ref": "#/$defs/a~1b~0c"}, {"null"}),
        ({"$ref": "#/$defs/none"}, set()),
        ({"$ref": "https://example.com"}, set()),
        ({"$ref": "other/$defs/n"}, set()),
        ({"anyOf": [{"type": "string"}, {"$ref": "#/$defs/n"}]}, {"string", "number"}),
        ({"oneOf": [{"type": "string"}, {}]}, set()),
        ({"anyOf": 1}, set()),
        ({"allOf": [{"description": "x"}, {"$ref": "#/$defs/n"}]}, {"number"}),
        ({"type": "string", "nullable": True}, {"string", "null"}),
        ({"nullable": True}, set()),
        (True, set()),
    ],
)
def test_an_argument_has_the_types_of_its_schema(schema: object, types: set[str]) -> None:
    tool = Tool("f", parameters={"properties": {"x": schema}, "$defs": DEFINITIONS})
    assert signature(tool).types_of("x") == types


@pytest.mark.parametrize("name", ["node", "own"])
def test_a_schema_that_contains_itself_is_read_once(name: str) -> None:
    """Each of twenty choices is the schema itself: followed one by one they would never end."""
    tool = Tool("f", parameters={"properties": {"x": {"$ref": f"#/$defs/{name}"}}, "$defs": DEFINITIONS})
    assert signature(tool).types_of("x") == set()


def test_a_long_chain_of_references_is_not_followed_to_its_end() -> None:
    links = {str(at): {"$ref": f"#/$defs/{at + 1}"} for at in range(5000)}
    tool = Tool("f", parameters={"properties": {"x": links["0"]}, "$defs": links})
    assert signature(tool).types_of("x") == set()


@pytest.mark.parametrize("schema", [{"$ref": "#/$defs/tree"}, {"allOf": [{}, {"anyOf": [{"$ref": "#/$defs/tree"}]}]}])
def test_a_shape_finds_members_and_items_behind_references_and_choices(schema: dict[str, Any]) -> None:
    tree = {
        "properties": {"x": {"type": "string"}, "left": {"$ref": "#/$defs/tree"}},
        "items": {"type": "boolean"},
        "additionalProperties": {"type": "number"},
    }
    shape = Shape({"$defs": {**DEFINITIONS, "tree": tree}}, schema)
    assert shape.member("x").types == {"string"}
    assert shape.member("left").member("left").member("x").types == {"string"}
    assert shape.member("y").types == {"number"}
    assert shape.item.types == {"boolean"}
    assert shape.item.item.types == shape.item.member("x").types == set()


@pytest.mark.parametrize(
    "schema", [{"$ref": "#/$defs/node"}, {"$ref": "#/$defs/none"}, {"anyOf": 1}, True, {"items": 1}]
)
def test_a_shape_without_members_and_items_has_any(schema: object) -> None:
    shape = Shape({"$defs": DEFINITIONS}, schema)
    assert shape.member("x").types == shape.item.types == set()


@pytest.mark.parametrize("parameters", [{}, {"properties": []}, {"properties": {"y": 1}}])
def test_an_argument_without_a_schema_may_have_any_type(parameters: dict[str, Any]) -> None:
    assert signature(Tool("f", parameters=parameters)).types_of("x") == set()
