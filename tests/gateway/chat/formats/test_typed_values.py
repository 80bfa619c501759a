"""Values between tags become the JSON that the tool's schema asks for."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.chat.tools import Tool
from tests.gateway.chat.formats.case import wide
from tests.gateway.chat.formats.cases import TEMPLATES
from tests.gateway.chat.formats.parsing import cut, read_call
from tests.repeat import TIMES, repeated

_POINT = {"type": "object", "properties": {"x": {"type": "number"}, "of": {"$ref": "#/$defs/point"}}}
_PROPERTIES: dict[str, Any] = {
    "text": {"type": "string"},
    "count": {"type": "integer"},
    "flag": {"type": "boolean"},
    "point": {"$ref": "#/$defs/point"},
    "points": {"type": "array", "items": {"$ref": "#/$defs/point"}},
    "texts": {"type": "array", "items": {"type": "string"}},
    "perhaps": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    "number": {"type": ["number", "null"]},
    "either": {"oneOf": [{"type": "string"}, {"type": "array"}, {"$ref": "#/$defs/point"}]},
    "size": {"type": ["string", "integer"]},
    "width": {"type": ["string", "number"]},
    "any": {},
}
_TOOL = Tool("f", parameters={"type": "object", "properties": _PROPERTIES, "$defs": {"point": _POINT}})

_WRITTEN = {
    "qwen-coder": (
        "<tool_call>\n<function=f>\n{}</function>\n</tool_call>",
        "<parameter={name}>\n{value}\n</parameter>\n",
    ),
    "seed": (
        "<seed:tool_call>\n<function=f>\n{}</function>\n</seed:tool_call>",
        "<parameter={name}>{value}</parameter>\n",
    ),
    "minimax": (
        '<minimax:tool_call>\n<invoke name="f">\n{}</invoke>\n</minimax:tool_call>',
        '<parameter name="{name}">{value}</parameter>\n',
    ),
    "minicpm": ('<function name="f">{}</function>', '<param name="{name}">{value}</param>'),
    "kimi-k3": (
        '<|open|>call tool="f" index="1"<|sep|>{}<|close|>call<|sep|>',
        '<|open|>argument key="{name}" type="{type}"<|sep|>{value}<|close|>argument<|sep|>',
    ),
    "dsml": (
        wide('<|DSML|tool_calls>\n<|DSML|invoke name="f">\n{}</|DSML|invoke>\n</|DSML|tool_calls>'),
        wide('<|DSML|parameter name="{name}" string="{string}">{value}</|DSML|parameter>\n'),
    ),
    "glm": ("<tool_call>f\n{}</tool_call>", "<arg_key>{name}</arg_key>\n<arg_value>{value}</arg_value>\n"),
}
"""A call and an argument, as each family's template writes them."""

_KIMI_TYPES = {str: "string", int: "number", bool: "boolean", dict: "object", list: "array", type(None): "null"}

_TEXTS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="<"), max_size=12),
    st.sampled_from(
        [
            "<function=f>",
            "<tool_call>",
            '<invoke name="f">',
            "</tool_call",
            'a\n\n"b"\n',
            "<parameter",
            "5",
            "null",
            "{",
        ]
    ),
)
_NUMBERS = st.integers(-(10**9), 10**9)
_POINTS = st.recursive(
    st.fixed_dictionaries({"x": _NUMBERS}),
    lambda inner: st.fixed_dictionaries({"x": _NUMBERS, "of": inner}),
    max_leaves=3,
)
_VALUES = st.fixed_dictionaries(
    {},
    optional={
        "text": _TEXTS,
        "count": _NUMBERS,
        "flag": st.booleans(),
        "point": _POINTS,
        "points": st.lists(_POINTS, max_size=2),
        "perhaps": st.none() | _TEXTS.filter(lambda text: text.strip() != "null"),
        "number": st.none() | _NUMBERS,
        "either": st.lists(_TEXTS, max_size=2) | _POINTS | st.just("no JSON"),
    },
)


def _write(family: str, arguments: dict[str, Any]) -> str:
    call, argument = _WRITTEN[family]
    parts = (
        argument.format(
            name=name,
            value=value if isinstance(value, str) else json.dumps(value),
            string="true" if isinstance(value, str) else "false",
            type=_KIMI_TYPES[type(value)],
        )
        for name, value in arguments.items()
    )
    return call.format("".join(parts))


def _read(family: str, pieces: list[str]) -> Any:
    return read_call(TEMPLATES[family], pieces, _TOOL)


@pytest.mark.parametrize("family", _WRITTEN)
@given(arguments=_VALUES, data=st.data())
@settings(max_examples=10 * TIMES)
@repeated
def test_arguments_are_read_as_they_were_written_at_any_cut(
    family: str, arguments: dict[str, Any], data: st.DataObject
) -> None:
    text = _write(family, arguments)
    assert _read(family, cut(text, data)) == arguments


@pytest.mark.parametrize("family", _WRITTEN)
def test_the_name_of_an_argument_may_begin_with_a_slash(family: str) -> None:
    assert _read(family, [_write(family, {"/path": "a"})]) == {"/path": "a"}


@pytest.mark.parametrize("family", _WRITTEN)
def test_strings_in_json_may_have_the_tag_that_ends_the_value(family: str) -> None:
    ended = _WRITTEN[family][1].partition("{value}")[2].strip()
    arguments = {"texts": [ended, f"a\n{ended}\n"], "count": 5}
    for texts in (arguments["texts"], f"\n {json.dumps(arguments['texts'])} \n"):
        text = _write(family, {**arguments, "texts": texts})
        assert _read(family, [text]) == _read(family, list(text)) == arguments


@pytest.mark.parametrize("family", _WRITTEN)
def test_a_value_that_may_be_text_ends_at_the_first_tag(family: str) -> None:
    arguments = {"any": '["a', "text": '"]'}
    assert _read(family, [_write(family, arguments)]) == arguments


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("text", "5", "5"),
        ("text", "null", "null"),
        ("text", '{"x": 1}', '{"x": 1}'),
        ("count", " 5 ", 5),
        ("count", "five", "five"),
        ("count", "5 apples", "5 apples"),
        ("points", " \n [] \n", []),
        ("size", "5", 5),
        ("size", "1.5", "1.5"),
        ("size", "1e3", "1e3"),
        ("width", "5", 5),
        ("width", "1.5", 1.5),
        ("flag", "True", True),
        ("point", "{'x': 1, 'of': {'x': None}}", {"x": 1, "of": {"x": None}}),
        ("point", '{"x": 1', '{"x": 1'),
        ("points", "[{}, {'x': 2}]", [{}, {"x": 2}]),
        ("perhaps", "None", None),
        ("perhaps", "5", "5"),
        ("perhaps", '{"x": 1}', '{"x": 1}'),
        ("number", "null", None),
        ("number", "1.5", 1.5),
        ("number", "", None),
        ("text", "", ""),
        ("perhaps", "", ""),
        ("either", '["a"]', ["a"]),
        ("either", '{"x": 1}', {"x": 1}),
        ("either", "5", "5"),
        ("either", '"a"', '"a"'),
        ("any", " 5 ", 5),
        ("any", "five", "five"),
        ("unknown", "[1]", [1]),
    ],
)
def test_a_value_has_a_type_of_its_schema_where_it_can(name: str, text: str, value: object) -> None:
    for family in ("qwen-coder", "minimax", "seed", "glm"):
        call, argument = _WRITTEN[family]
        assert _read(family, [call.format(argument.format(name=name, value=text))]) == {name: value}, family
