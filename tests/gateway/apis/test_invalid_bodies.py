"""Errors of invalid bodies: the code, the place and the words that a client sees, over all APIs."""

from typing import Any

import pytest
from pydantic import BaseModel

from gateway.apis.anthropic.messages.request import MessagesBody
from gateway.apis.ollama.embeddings import EmbedBody
from gateway.apis.ollama.request import OllamaChatBody
from gateway.apis.openai.chat.request import ChatBody
from gateway.apis.openai.completions.request import CompletionBody
from gateway.apis.openai.responses.request import ResponseBody
from tests.gateway.apis.bodies import BODIES, CHAT, MESSAGES, RESPONSE, USER, Body, refused


def message(*parts: Any, role: str = "user") -> Body:
    return {"messages": [{"role": role, "content": list(parts)}]}


def choosing(tool: Body) -> Body:
    return {"messages": [USER], "tool_choice": tool}


@pytest.mark.parametrize(
    ("model", "body", "param"),
    [
        (ChatBody, {}, "messages"),
        (ChatBody, {"messages": [{"content": "a"}]}, "messages[0].role"),
        (ChatBody, {"messages": [{"role": None, "content": "a"}]}, "messages[0].role"),
        (ChatBody, {"messages": [{"role": "user"}]}, "messages[0].content"),
        (ChatBody, message({"type": "text"}), "messages[0].content[0].text"),
        (ChatBody, message({"type": "refusal"}, role="assistant"), "messages[0].content[0].refusal"),
        (
            ChatBody,
            {"messages": [{"role": "assistant", "tool_calls": [{"id": "1"}]}]},
            "messages[0].tool_calls[0].type",
        ),
        (ChatBody, {"messages": [USER], "tools": [{"type": "function"}]}, "tools[0].function"),
        (ChatBody, {"messages": [USER], "tools": [{}]}, "tools[0].type"),
        (ChatBody, choosing({"type": "function"}), "tool_choice.function"),
        (ChatBody, choosing({}), "tool_choice.type"),
        (ChatBody, {"messages": [USER], "lora": [{"id": 0}]}, "lora[0].scale"),
        (ChatBody, {"messages": [USER], "response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        (ResponseBody, {"input": [{}]}, "input[0].type"),
        (ResponseBody, {"input": [{"content": "a"}]}, "input[0].role"),
        (ResponseBody, {"input": "a", "text": {"format": {"type": "json_schema", "schema": {}}}}, "text.format.name"),
        (MessagesBody, {**MESSAGES, "messages": [{"content": "a"}]}, "messages[0].role"),
        (MessagesBody, {**MESSAGES, **message({"text": "a"})}, "messages[0].content[0].type"),
        (MessagesBody, {**MESSAGES, "tools": [{"name": "f"}]}, "tools[0].input_schema"),
        (MessagesBody, {**MESSAGES, "context_management": {"edits": [{}]}}, "context_management.edits[0].type"),
    ],
)
def test_a_missing_field_is_named_as_missing(model: type[BaseModel], body: Body, param: str) -> None:
    error = refused(model, body)
    assert error is not None
    assert (error.param, error.code) == (param, "missing_required_parameter")
    assert error.message.startswith(f"{param}: Field required")


@pytest.mark.parametrize(
    ("model", "fields", "words"),
    [
        (ChatBody, {"messages": 5}, "messages: should be an array of messages"),
        (ChatBody, {"messages": ["a"]}, "messages[0]: should be an object"),
        (ChatBody, {"messages": [{"role": 5}]}, "messages[0].role: should be one of system, developer, user"),
        (ChatBody, message("a"), "messages[0].content[0]: should be an object"),
        (
            ChatBody,
            {"messages": [{"role": "user", "content": {}}]},
            "messages[0].content: should be a string or an array",
        ),
        (ChatBody, {"tools": {}}, "tools: should be an array of tools"),
        (ChatBody, {"tool_choice": 5}, "tool_choice: should be a string or an object"),
        (ChatBody, {"function_call": []}, "function_call: should be a string or an object"),
        (ChatBody, {"stop": 5}, "stop: should be a string or an array of strings"),
        (ChatBody, {"verbosity": 5}, "verbosity: should be 'low', 'medium' or 'high'"),
        (ChatBody, {"metadata": {"a": 5}}, "metadata: should have strings as its values"),
        (CompletionBody, {"prompt": [None]}, "prompt: should be a string, an array of strings"),
        (ResponseBody, {"tool_choice": True}, "tool_choice: should be a string or an object"),
        (
            ResponseBody,
            {"tools": [{"type": "custom", "name": "g", "format": 5}]},
            "tools[0].format: should be an object",
        ),
        (MessagesBody, message(5), "messages[0].content[0]: should be an object"),
        (MessagesBody, {"tools": [5]}, "tools[0]: should be an object"),
        (OllamaChatBody, {"think": 5}, "think: should be true, false or a string"),
        (OllamaChatBody, {"format": True}, "format: should be a string or an object"),
        (EmbedBody, {"input": [None]}, "input[0]: should be a string"),
        (EmbedBody, {"input": 5}, "input: should be a string or an array of strings"),
    ],
)
def test_a_value_of_another_type_is_named_so(model: type[BaseModel], fields: Body, words: str) -> None:
    error = refused(model, {**BODIES[model], **fields})
    assert error is not None
    assert error.code == "invalid_type"
    assert error.message.startswith(words)


@pytest.mark.parametrize(
    ("model", "fields", "words"),
    [
        (ChatBody, {"tool_choice": "some"}, "tool_choice: should be 'none', 'auto' or 'required'"),
        (
            ChatBody,
            {"tool_choice": {"type": "x"}},
            "tool_choice.type: should be one of function, custom, allowed_tools",
        ),
        (
            ChatBody,
            {"tool_choice": {"type": "function", "function": {"name": 5}}},
            "tool_choice.function.name: should be",
        ),
        (
            ChatBody,
            {"tools": [{"type": "custom", "custom": {"name": "g", "format": {"type": "grammar", "grammar": {}}}}]},
            "tools[0].custom.format.grammar.syntax: Field required",
        ),
        (
            ResponseBody,
            {"tool_choice": {**RESPONSE["tool_choice"], "tools": [{"type": "x" * 70000}]}},
            "tool_choice.tools[0].type",
        ),
        (
            ResponseBody,
            {"tool_choice": {**RESPONSE["tool_choice"], "tools": [{"type": "custom"}]}},
            "tool_choice.tools[0].name: ",
        ),
        (MessagesBody, message({"type": "x"}), "messages[0].content[0].type: should be one of text, tool_result"),
        (OllamaChatBody, {"think": "some"}, "think: should be 'low', 'medium', 'high' or 'max'"),
        (OllamaChatBody, {"format": "xml"}, "format: should be '' or 'json'"),
    ],
)
def test_a_union_reports_the_fault_of_the_member_that_was_meant(
    model: type[BaseModel], fields: Body, words: str
) -> None:
    error = refused(model, {**BODIES[model], **fields})
    assert error is not None
    assert error.message.startswith(words)
    assert len(error.message) < 300


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"lora": [{"id": 0, "scale": 1}] * 65}, "lora: should have at most 64 items"),
        ({"guided_choice": []}, "guided_choice: should have at least 1 item"),
        ({"guided_regex": ""}, "guided_regex: should have at least 1 character"),
        ({"temperature": 3}, "temperature: should be less than or equal to 2"),
        ({"temperature": "3"}, "temperature: should be a number"),
        ({"seed": 2.0**64}, "seed: should have at most 64 bits"),
        ({"seed": -(2.0**70)}, "seed: should have at most 64 bits"),
        ({"seed": 1.5}, "seed: should be an integer"),
        ({"stream": 1}, "stream: should be true or false"),
        ({"metadata": {"a" * 65: ""}}, "metadata: should have keys of at most 64 characters"),
        ({"metadata": {"a": "b" * 513}}, "metadata: should have values of at most 512 characters"),
    ],
)
def test_the_reason_is_in_the_words_of_json(fields: Body, words: str) -> None:
    error = refused(ChatBody, {**CHAT, **fields})
    assert error is not None
    assert error.message == words
