"""Any text that a grammar allows has calls whose arguments match the schemas of their tools."""

import json
import random
from collections import defaultdict
from typing import Any

import jsonschema
import pytest

from gateway.chat.deltas import CallArguments, CallBegan, ContentDelta, Delta
from gateway.chat.tools import Tool
from tests.gateway.chat.formats.cases import TEMPLATES
from tests.gateway.chat.formats.forced_calls import ENDS, VOCABULARIES
from tests.gateway.chat.formats.parsing import choose, parse
from tests.repeat import TIMES, repeated

_DEFINITIONS: dict[str, Any] = {
    "point": {
        "type": "object",
        "properties": {"x": {"type": "number"}, "of": {"$ref": "#/$defs/point"}, "name": {"type": "string"}},
        "required": ["x"],
        "additionalProperties": False,
    },
    "unit": {"type": "string", "enum": ["km", "mile", "a\nb", "<x>", ""]},
}
_SCHEMAS: list[dict[str, Any]] = [
    *({"type": name} for name in ("string", "integer", "number", "boolean", "null")),
    {},
    {"type": ["string", "null"]},
    {"type": ["integer", "null"]},
    {"type": "integer", "minimum": 2, "maximum": 9},
    {"type": "array", "items": {"type": "string"}},
    {"type": "array", "items": {"type": "integer"}, "maxItems": 2},
    {"const": 5},
    {"enum": ["a", 1, None]},
    {"enum": ["5", "null"]},
    {"oneOf": [{"const": "a"}, {"const": "b"}]},
    {"anyOf": [{"type": "boolean"}, {"type": "integer"}]},
    {"anyOf": [{"$ref": "#/$defs/unit"}, {"type": "null"}]},
    {"$ref": "#/$defs/unit"},
    {"$ref": "#/$defs/point"},
]


def _tool(name: str, chance: random.Random, *, strict: bool) -> Tool:
    properties = {argument: chance.choice(_SCHEMAS) for argument in chance.sample(("city", "x-y", "z_1", "item"), 2)}
    parameters = {
        "type": "object",
        "$defs": _DEFINITIONS,
        "properties": properties,
        "required": [argument for argument in properties if chance.random() < 0.5],
        "additionalProperties": False,
    }
    return Tool(name, parameters=parameters, strict=strict)


def _calls(deltas: list[Delta]) -> list[tuple[str, Any]]:
    names = [delta.name for delta in deltas if isinstance(delta, CallBegan)]
    texts: dict[int, str] = defaultdict(str)
    for delta in deltas:
        if isinstance(delta, CallArguments):
            texts[delta.index] += delta.text
    return [(name, json.loads(texts[index])) for index, name in enumerate(names)]


@pytest.mark.parametrize("family", TEMPLATES)
@repeated
def test_what_a_grammar_allows_is_read_as_calls_that_match_their_schemas(family: str) -> None:
    chance = random.Random(family)
    read = 0
    for _ in range(12 * TIMES):
        vocabulary = VOCABULARIES[chance.choice(list(VOCABULARIES))]
        chosen = choose(TEMPLATES[family], vocabulary.special_tokens)
        strict = chance.random() < 0.5
        tools = {name: _tool(name, chance, strict=strict) for name in ("get_weather", "now")}
        parallel = chance.random() < 0.5
        grammar = chosen.grammar([*tools.values()], "required", parallel=parallel, thinking=False)
        assert grammar is not None
        text = vocabulary.sample(grammar, chance, ENDS)
        if text is None:
            continue
        deltas = parse(chosen, [text], tools=[*tools.values()])
        calls = _calls(deltas)
        assert calls, text
        assert parallel or len(calls) == 1
        assert not any(isinstance(delta, ContentDelta) and delta.text.strip() for delta in deltas), text
        for name, arguments in calls:
            jsonschema.validate(arguments, tools[name].parameters)
        read += 1
    assert read > 1
