"""Conversion of Anthropic's messages to those of chat templates."""

from typing import Any

import pytest

from engine import RequestError
from gateway.apis.anthropic.messages.request import CountBody
from gateway.apis.anthropic.signature import sign
from gateway.chat.conversation import Conversation
from gateway.chat.tools import Named

ADD = {"name": "add", "input_schema": {"type": "object"}}
USE = {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"x": 1}}
CALL = {"id": "toolu_1", "type": "function", "function": {"name": "add", "arguments": '{"x":1}'}}
HI = {"role": "user", "content": "Hi"}


def text(words: str) -> Any:
    return {"type": "text", "text": words}


def conversation(*messages: Any, **fields: Any) -> Conversation:
    return CountBody.model_validate({"model": "m", "messages": list(messages) or [HI], **fields}).conversation()


def result(**fields: Any) -> Any:
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", **fields}]}


def tool(content: str) -> Any:
    return {"role": "tool", "tool_call_id": "toolu_1", "name": "add", "content": content}


@pytest.mark.parametrize("system", ["One\nTwo", [text("One"), text("Two")]])
def test_the_system_prompt_is_the_first_message(system: Any) -> None:
    assert conversation(system=system).messages == ({"role": "system", "content": "One\nTwo"}, HI)


def test_texts_and_messages_of_one_role_are_joined() -> None:
    messages = conversation(HI, {"role": "user", "content": [text("a"), text("b")]}, {"role": "system", "content": "s"})
    assert messages.messages == ({"role": "user", "content": "Hi\na\nb"}, {"role": "system", "content": "s"})


def test_an_assistants_message_has_its_thinking_texts_and_calls() -> None:
    blocks = [
        {"type": "thinking", "thinking": "why", "signature": sign("why")},
        {"type": "redacted_thinking", "data": "EmwK"},
        text("so"),
        USE,
    ]
    _, turn, answer = conversation(HI, {"role": "assistant", "content": blocks}, result(content="2")).messages
    assert turn == {"role": "assistant", "content": "so", "reasoning_content": "why", "tool_calls": [CALL]}
    assert answer == tool("2")


@pytest.mark.parametrize(
    ("fields", "content"),
    [
        ({"content": "2"}, "2"),
        ({"content": [text("2"), text("3")]}, "2\n3"),
        ({"content": [{"type": "tool_reference", "tool_name": "add"}, text("3")]}, "add\n3"),
        ({}, ""),
        ({"content": "no", "is_error": True}, "Error: no"),
    ],
)
def test_the_output_of_a_tool_is_a_message_of_its_own(fields: Any, content: str) -> None:
    messages = conversation(HI, {"role": "assistant", "content": [USE]}, result(**fields)).messages
    assert messages[-1] == tool(content)


def test_texts_beside_outputs_stay_in_order() -> None:
    mixed = {"role": "user", "content": [*result(content="2")["content"], text("go on")]}
    *_, answer, after = conversation(HI, {"role": "assistant", "content": [USE]}, mixed).messages
    assert (answer, after) == (tool("2"), {"role": "user", "content": "go on"})


@pytest.mark.parametrize("signature", [None, "", "another server's"])
def test_thinking_that_another_server_signed_is_used(signature: str | None) -> None:
    block = {"type": "thinking", "thinking": "why", "signature": signature}
    _, turn = conversation(HI, {"role": "assistant", "content": [block]}).messages
    assert turn["reasoning_content"] == "why"


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (result(content="2"), r"messages\[0\]\.content\[0\]\.tool_use_id: should be the id"),
        ({"role": "user", "content": [{"type": "image", "source": {}}]}, "Could not process image: "),
        ({"role": "user", "content": [{"type": "document", "source": {}}]}, "Could not process PDF: "),
        ({"role": "user", "content": [{**USE}]}, r"content\[0\]\.type: should be one of text, tool_result"),
        ({"role": "tool", "content": "2"}, r"messages\[0\]\.role"),
        ({"role": "assistant", "content": [USE]}, "without tool_result blocks"),
        (
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "new", "signature": sign("old")}]},
            "Invalid `signature`",
        ),
    ],
)
def test_what_cannot_be_shown_is_refused_by_name(message: Any, reason: str) -> None:
    with pytest.raises(RequestError, match=reason):
        conversation(message)


@pytest.mark.parametrize(
    ("kind", "reason"), [("image", "Could not process image"), ("document", "Could not process PDF")]
)
def test_media_in_outputs_are_refused_in_anthropics_words(kind: str, reason: str) -> None:
    with pytest.raises(RequestError, match=rf"messages\[2\].*: {reason}: "):
        conversation(HI, {"role": "assistant", "content": [USE]}, result(content=[{"type": kind}]))


@pytest.mark.parametrize(
    ("choice", "expected", "parallel"),
    [
        (None, "auto", True),
        ({"type": "auto", "disable_parallel_tool_use": True}, "auto", False),
        ({"type": "any"}, "required", True),
        ({"type": "tool", "name": "add", "disable_parallel_tool_use": True}, Named("add"), False),
        ({"type": "none"}, "none", True),
    ],
)
def test_the_choice_of_a_tool(choice: Any, expected: Any, parallel: bool) -> None:
    found = conversation(tools=[ADD], tool_choice=choice)
    assert (found.tool_choice, found.parallel_tool_calls) == (expected, parallel)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"tool_choice": {"type": "tool", "name": "sub"}, "tools": [ADD]}, "not offered"),
        ({"tool_choice": {"type": "any"}}, "no tools are offered"),
        ({"tools": [{"type": "web_search_20260318", "name": "web_search"}]}, "runs no tools"),
        (
            {"thinking": {"type": "enabled", "budget_tokens": 9}, "tool_choice": {"type": "any"}, "tools": [ADD]},
            "force",
        ),
        ({"thread": {"type": "create"}}, "thread"),
        ({"mcp_servers": []}, "mcp_servers"),
    ],
)
def test_fields_that_contradict_or_are_not_supported_are_refused(fields: Any, reason: str) -> None:
    with pytest.raises(RequestError, match=reason):
        conversation(**fields)


def test_the_last_message_of_the_assistant_is_continued() -> None:
    assert conversation(HI, {"role": "assistant", "content": "It is"}).continue_final
    assert not conversation().continue_final


def test_thinking_effort_and_format_reach_the_template_and_the_grammar() -> None:
    found = conversation(
        thinking={"type": "enabled", "budget_tokens": 9},
        output_config={"effort": "low", "format": {"type": "json_schema", "schema": {"type": "object"}}},
    )
    assert found.reasoning_budget == 9
    assert found.template_kwargs == {"reasoning_effort": "low", "enable_thinking": True}
    assert found.grammar is not None


@pytest.mark.parametrize(
    "system",
    [
        "x-anthropic-billing-header: cc_version=2.1.197.3bb; cc_entrypoint=cli;\nYou are",
        "x-anthropic-billing-header: cc_version=2.1; cch=a5145\nYou are",
        "x-anthropic-billing-header: cc_version=2.1; cch=a5145;You are",
        [text("x-anthropic-billing-header: cch=a5145;"), text("You are")],
    ],
)
def test_a_billing_header_is_dropped(system: Any) -> None:
    assert conversation(system=system).messages[0]["content"] == "You are"


def test_a_system_prompt_with_a_billing_header_only_is_left_out() -> None:
    assert conversation(system="x-anthropic-billing-header: cch=a5145;").messages == (HI,)


@pytest.mark.parametrize("system", ["Be brief. x-anthropic-billing-header: cch=a5145;", "x-other-header: cch=a5145;"])
def test_only_a_billing_header_at_the_beginning_is_dropped(system: str) -> None:
    assert conversation(system=system).messages[0]["content"] == system
