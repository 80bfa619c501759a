"""Schemas of the arguments of tools, in each API that has tools."""

from collections.abc import Callable
from typing import Any

import pytest

from engine import RequestError
from gateway.apis.anthropic.messages.request import MessagesBody
from gateway.apis.ollama.request import OllamaChatBody
from gateway.apis.openai.chat.tools import ToolFields
from gateway.apis.openai.responses.tools.fields import ResponseToolFields
from gateway.chat.tools import Tool
from tests.gateway.apis.openai.chat.test_tools import tool

Schema = dict[str, Any]
Read = Callable[[Schema], Tool]


def of_chat(schema: Schema) -> Tool:
    return ToolFields.model_validate({"tools": [tool(parameters=schema)]}).tool_set().tools[0]


def of_old_functions(schema: Schema) -> Tool:
    return ToolFields.model_validate({"functions": [{"name": "add", "parameters": schema}]}).tool_set().tools[0]


def of_responses(schema: Schema) -> Tool:
    function = {"type": "function", "name": "add", "parameters": schema}
    return ResponseToolFields.model_validate({"tools": [function]}).tool_set().tools[0]


def of_anthropic(schema: Schema) -> Tool:
    tools = [{"name": "add", "input_schema": schema}]
    body = {"model": "tiny", "max_tokens": 1, "messages": [{"role": "user", "content": "Hi"}], "tools": tools}
    return MessagesBody.model_validate(body).conversation().tools[0]


def of_ollama(schema: Schema) -> Tool:
    body = {"model": "tiny", "messages": [{"role": "user", "content": "Hi"}], "tools": [tool(parameters=schema)]}
    conversation = OllamaChatBody.model_validate(body).conversation()
    assert conversation is not None
    return conversation.tools[0]


APIS = [
    (of_chat, "tools[0].function.parameters"),
    (of_old_functions, "functions[0].parameters"),
    (of_responses, "tools[0].parameters"),
    (of_anthropic, "tools[0].input_schema"),
    (of_ollama, "tools[0].function.parameters"),
]


@pytest.mark.parametrize(("read", "place"), APIS)
@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": "string"}, 'type should be "object"'),
        ({"type": ["string", "null"]}, 'type should be "object"'),
        ({"type": {}}, 'type should be "object"'),
        ({"required": 5}, "required should be an array of strings"),
        ({"required": True}, "required should be an array of strings"),
        ({"required": "x"}, "required should be an array of strings"),
        ({"required": [["x"]]}, "required should be an array of strings"),
    ],
)
def test_a_schema_that_is_none_of_an_object_is_refused_by_its_place(
    read: Read, place: str, schema: Schema, reason: str
) -> None:
    with pytest.raises(RequestError) as caught:
        read(schema)
    assert (caught.value.param, caught.value.message) == (place, f"{place}: {reason}")


@pytest.mark.parametrize("read", [read for read, _ in APIS])
def test_keywords_that_are_null_are_not_given(read: Read) -> None:
    """Some encoders write null for an empty array or object."""
    assert read({"type": None, "properties": None, "required": None}).parameters == {}
    schema = {"type": ["object", "null"], "properties": {"x": {"default": None}}, "required": ["x"], "default": None}
    assert read(schema).parameters == schema
