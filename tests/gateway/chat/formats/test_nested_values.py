"""Values whose members and items stand between tags become the JSON that the tool's schema asks for."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.chat.deltas import CallArguments, CallBegan
from gateway.chat.tools import Tool
from tests.gateway.chat.formats.cases import TEMPLATES
from tests.gateway.chat.formats.parsing import SIGNATURES, choose, cut, parse, read_call, stream
from tests.repeat import TIMES, repeated

_MARK = "]<]minimax[>["
_NODE = {
    "type": "object",
    "properties": {
        "code": {"type": "string"},
        "count": {"type": "integer"},
        "flag": {"type": "boolean"},
        "perhaps": {"type": ["string", "null"]},
        "inner": {"$ref": "#/$defs/node"},
        "list": {"type": "array", "items": {"anyOf": [{"$ref": "#/$defs/node"}]}},
        "codes": {"type": "array", "items": {"type": "string"}},
        "counts": {"allOf": [{"type": "object", "additionalProperties": {"type": "integer"}}]},
        "item": {"type": ["object", "null"], "properties": {"item": {"type": "string"}}},
    },
}
_TOOL = Tool("f", parameters={**_NODE, "$defs": {"node": _NODE}})

_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(
    ["5", "null", "[]", "\n<item>", f"{_MARK}<item>", f"{_MARK}</item", "]<]mini"]
)
_LEAVES: Any = {
    "code": _TEXTS,
    "count": st.integers(-(10**9), 10**9),
    "flag": st.booleans(),
    "codes": st.lists(_TEXTS, max_size=3),
    "counts": st.dictionaries(st.sampled_from("abc"), st.integers(0, 9)),
    "item": st.fixed_dictionaries({"item": _TEXTS}),
}
_VALUES = st.recursive(
    st.fixed_dictionaries({}, optional=_LEAVES),
    lambda nodes: st.fixed_dictionaries(
        {}, optional={**_LEAVES, "inner": nodes, "list": st.lists(nodes, min_size=1, max_size=2)}
    ),
    max_leaves=4,
)


def _elements(value: Any) -> str:
    """Return a value as the template of MiniMax M3 writes it."""
    if isinstance(value, dict | list):
        members = value.items() if isinstance(value, dict) else [("item", item) for item in value]
        return "".join(f"{_MARK}<{name}>{_elements(member)}{_MARK}</{name}>" for name, member in members)
    return value if isinstance(value, str) else json.dumps(value)


def _call(arguments: str) -> str:
    return f'{_MARK}<tool_call>\n{_MARK}<invoke name="f">{arguments}{_MARK}</invoke>\n{_MARK}</tool_call>'


def _read(pieces: list[str]) -> Any:
    return read_call(TEMPLATES["minimax-m3"], pieces, _TOOL)


@given(arguments=_VALUES, data=st.data())
@settings(max_examples=20 * TIMES)
@repeated
def test_nested_values_are_read_as_they_were_written_at_any_cut(arguments: dict[str, Any], data: st.DataObject) -> None:
    text = _call(_elements(arguments))
    assert _read(cut(text, data)) == arguments


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        (
            "<inner></inner><codes></codes><counts></counts><item></item><perhaps></perhaps>",
            {"inner": {}, "codes": [], "counts": {}, "item": {}, "perhaps": ""},
        ),
        ("<inner>\n<code>5</code>\n<count> 5 </count>\n</inner>", {"inner": {"code": "5", "count": 5}}),
        ('<inner>{"code": "5"}</inner><codes>["5"]</codes>', {"inner": {"code": "5"}, "codes": ["5"]}),
        ("<codes><code>5</code></codes>", {"codes": ["5"]}),
        ("<x><y>5</y><z>five</z></x>", {"x": {"y": 5, "z": "five"}}),
        ("<x><item>5</item><item>five</item></x>", {"x": [5, "five"]}),
        ("<inner>five</inner>", {"inner": "five"}),
    ],
)
def test_a_nested_value_has_the_type_of_its_schema_where_it_can(text: str, arguments: dict[str, Any]) -> None:
    assert _read([_call(text.replace("<", f"{_MARK}<"))]) == arguments


def test_nested_values_are_streamed() -> None:
    parser = choose(TEMPLATES["minimax-m3"]).parser(tools=SIGNATURES, thinking=False)
    pieces = [
        f'{_MARK}<invoke name="get_weather">{_MARK}<tags>',
        f"{_MARK}<item>Os",
        "lo",
        f"{_MARK}</item>{_MARK}</tags>",
    ]
    texts = [[delta.text for delta in step if isinstance(delta, CallArguments)] for step in stream(parser, pieces)]
    assert texts == [['{"tags": '], ['["Os'], ["lo"], ['"]'], []]


def test_nesting_has_a_limit() -> None:
    opening = f"{_MARK}<inner>"
    deltas = parse(choose(TEMPLATES["minimax-m3"]), [_call(opening * 1000)], tools=[_TOOL])
    assert deltas[0] == CallBegan(0, "f")
    assert isinstance(deltas[1], CallArguments)
    assert deltas[1].text.count("inner") < 100
