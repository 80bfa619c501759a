"""Ollama's messages for templates: calls get ids, and outputs find their calls."""

from typing import Any

import pytest

from gateway.apis.ollama.messages import OllamaMessage, for_template
from gateway.apis.ollama.options import Options, grammar_of, think_variables
from gateway.apis.ollama.request import OllamaChatBody

CALLS: dict[str, Any] = {
    "role": "assistant",
    "tool_calls": [{"function": {"name": name, "arguments": {"x": at}}} for at, name in enumerate("fgf")],
}


def converted(*messages: dict[str, Any]) -> list[dict[str, Any]]:
    return list(for_template([OllamaMessage.model_validate(message) for message in messages]))


def test_roles_may_be_in_any_case() -> None:
    [message] = converted({"role": "User", "content": "a"})
    assert message["role"] == "user"


def test_calls_have_ids_and_arguments_as_json() -> None:
    [message] = converted(CALLS)
    assert [call["id"] for call in message["tool_calls"]] == ["call_1", "call_2", "call_3"]
    assert message["tool_calls"][1]["function"] == {"name": "g", "arguments": '{"x":1}'}


@pytest.mark.parametrize(
    ("outputs", "ids"),
    [
        ([{}, {}, {}], ["call_1", "call_2", "call_3"]),
        ([{"tool_name": "g"}, {"tool_name": "f"}, {"tool_name": "f"}], ["call_2", "call_1", "call_3"]),
        ([{"tool_call_id": "call_3"}, {}], ["call_3", "call_1"]),
    ],
)
def test_an_output_belongs_to_the_first_open_call_that_it_names(outputs: list[dict[str, str]], ids: list[str]) -> None:
    given = [{"role": "tool", "content": "1", **output} for output in outputs]
    _, *tools = converted(CALLS, *given)
    assert [tool["tool_call_id"] for tool in tools] == ids


def test_an_output_without_a_call_keeps_the_name_of_its_tool() -> None:
    [tool] = converted({"role": "tool", "content": "1", "tool_name": "f"})
    assert (tool["name"], tool["content"]) == ("f", "1")


def test_reasoning_of_earlier_answers_is_kept() -> None:
    [message] = converted({"role": "assistant", "content": "a", "thinking": "b"})
    assert message == {"role": "assistant", "content": "a", "reasoning_content": "b"}


@pytest.mark.parametrize(("last", "continues"), [("assistant", True), ("user", False)])
def test_a_last_message_of_the_assistant_is_continued(last: str, continues: bool) -> None:
    body = OllamaChatBody.model_validate({"model": "m", "messages": [{"role": last, "content": "a"}]})
    conversation = body.conversation()
    assert conversation is not None
    assert conversation.continue_final is continues


@pytest.mark.parametrize(
    ("think", "variables"),
    [
        (None, {}),
        (True, {"enable_thinking": True}),
        (False, {"enable_thinking": False, "reasoning_effort": "none"}),
        ("low", {"enable_thinking": True, "reasoning_effort": "low"}),
    ],
)
def test_think_sets_the_variables_of_templates(think: Any, variables: dict[str, Any]) -> None:
    assert think_variables(think) == variables


@pytest.mark.parametrize(
    ("given", "seconds"),
    [(5, 5.0), ("5", 5.0), ("1h30m", 5400.0), ("1.5s", 1.5), ("-1", -1.0), ("-1m", -60.0), ("0", 0.0)],
)
def test_durations_are_those_of_go(given: object, seconds: float) -> None:
    assert OllamaChatBody.model_validate({"model": "m", "keep_alive": given}).keep_alive == seconds


@pytest.mark.parametrize("form", [None, ""])
def test_no_format_constrains_nothing(form: Any) -> None:
    assert grammar_of(form) is None


def test_a_negative_number_of_tokens_sets_no_limit() -> None:
    assert [Options.model_validate({"num_predict": number}).max_tokens for number in (-1, -2, 0, 3)] == [
        None,
        None,
        0,
        3,
    ]
