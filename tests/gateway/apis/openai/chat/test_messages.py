"""Messages: every role, every part, and the place named by a refusal."""

from typing import Any

import pytest
from pydantic import ValidationError

from engine import RequestError
from gateway.apis.fields.parts import MAX_MESSAGES, MAX_PARTS
from gateway.apis.openai.chat.messages import for_template, read_messages
from gateway.chat.template_capabilities import TemplateMessage

CALL = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"x": 1}'}}
CALLED = {"role": "assistant", "tool_calls": [CALL]}
OLD_CALL = {"role": "assistant", "content": None, "function_call": {"name": "add", "arguments": "{}"}}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}


def plain(*messages: dict[str, Any]) -> list[TemplateMessage]:
    return list(for_template(read_messages([*messages])))


@pytest.mark.parametrize("role", ["system", "developer", "user", "assistant"])
def test_content_is_a_string_or_text_parts(role: str) -> None:
    parts = [{"type": "text", "text": "One"}, {"type": "text", "text": "two"}]
    assert plain({"role": role, "content": "Hi", "name": None}) == [{"role": role, "content": "Hi"}]
    assert plain({"role": role, "content": parts}) == [{"role": role, "content": "One\ntwo"}]
    assert plain({"role": role, "content": "Hi", "name": "Ada"}) == [{"role": role, "content": "Hi", "name": "Ada"}]


def test_a_refusal_counts_as_the_assistants_content() -> None:
    assert plain({"role": "assistant", "refusal": "No."}) == [{"role": "assistant", "content": "No."}]
    parts = [{"type": "refusal", "refusal": "No."}]
    assert plain({"role": "assistant", "content": parts}) == [{"role": "assistant", "content": "No."}]


def test_reasoning_is_passed_to_the_template() -> None:
    thought = {"role": "assistant", "reasoning_content": "Hm.", "content": "Well."}
    assert plain(thought) == [thought]


def test_messages_of_the_sdk_can_be_sent_back() -> None:
    said: dict[str, Any] = {"role": "assistant", "content": "Hi", "refusal": None, "annotations": [], "audio": None}
    sent_back = {**said, "function_call": None, "tool_calls": None}
    assert plain(sent_back) == [{"role": "assistant", "content": "Hi"}]


def test_calls_and_their_results_are_accepted() -> None:
    called, result = plain(CALLED, {"role": "tool", "tool_call_id": "call_1", "content": "2"})
    assert called == {"role": "assistant", "content": None, "tool_calls": [CALL]}
    assert result == {"role": "tool", "content": "2", "tool_call_id": "call_1", "name": "add"}


def test_the_output_of_a_tool_may_have_no_parts() -> None:
    """LangChain sends it so for a tool of an MCP server that returns nothing."""
    _, result = plain(CALLED, {"role": "tool", "tool_call_id": "call_1", "content": []})
    assert result == {"role": "tool", "content": "", "tool_call_id": "call_1", "name": "add"}


def test_arguments_may_be_an_object() -> None:
    given = {**CALL, "function": {"name": "add", "arguments": {"x": 1}}}
    assert plain({**CALLED, "tool_calls": [given]}) == plain(CALLED)


def test_results_may_follow_all_calls() -> None:
    second = {"role": "assistant", "tool_calls": [{**CALL, "id": "call_2"}]}
    results = [{"role": "tool", "tool_call_id": id_, "content": "2"} for id_ in ("call_1", "call_2")]
    assert plain(CALLED, second, *results)[2:] == [{**result, "name": "add"} for result in results]


def test_a_deprecated_result_is_that_of_the_latest_call() -> None:
    result = {"role": "function", "name": "add", "content": "2"}
    ids = [message.get("tool_call_id") for message in plain(OLD_CALL, result, OLD_CALL, result)]
    assert ids == [None, "call_messages[0]", None, "call_messages[2]"]


def test_calls_of_the_deprecated_kind_become_those_of_today() -> None:
    called, result = plain(OLD_CALL, {"role": "function", "name": "add", "content": None})
    (call,) = called["tool_calls"]
    assert call["function"] == OLD_CALL["function_call"]
    assert result == {"role": "tool", "content": "", "name": "add", "tool_call_id": call["id"]}


WRONG: dict[str, tuple[list[Any], str, str]] = {
    "no object": (["Hi"], "messages[0]", "should be an object"),
    "no role": ([{"content": "Hi"}], "messages[0].role", "Field required"),
    "another role": ([{"role": ["user"], "content": "Hi"}], "messages[0].role", "should be one of"),
    "no content": ([{"role": "user"}], "messages[0].content", "Field required"),
    "null": ([{"role": "system", "content": None}], "messages[0].content", "Field required"),
    "a number": ([{"role": "user", "content": 5}], "messages[0].content", "should be a string or an array of parts"),
    "no parts": ([{"role": "user", "content": []}], "messages[0].content", "at least 1 item"),
    "a part that is none": ([{"role": "user", "content": ["Hi"]}], "messages[0].content[0]", "should be an object"),
    "another part": ([{"role": "user", "content": [{"type": "x"}]}], "messages[0].content[0].type", "'text' or"),
    "no text": ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0].text", "Field required"),
    "an image": (
        [{"role": "user", "content": "Hi"}, {"role": "user", "content": [{"type": "text", "text": "See:"}, IMAGE]}],
        "messages[1].content[1]",
        "this server's models take text only, no images",
    ),
    "a file": ([{"role": "user", "content": [{"type": "file", "file": {}}]}], "messages[0].content[0]", "no files"),
    "a sound": ([{"role": "user", "content": [{"type": "input_audio"}]}], "messages[0].content[0]", "no audio"),
    "its own sound": ([{"role": "assistant", "audio": {"id": "x"}}], "messages[0].audio", "is not supported"),
    "nothing said": ([{"role": "assistant", "content": None}], "messages[0]", "should have content, a refusal or"),
    "no arguments": (
        [{"role": "assistant", "tool_calls": [{**CALL, "function": {"name": "add"}}]}],
        "messages[0].tool_calls[0].function.arguments",
        "Field required",
    ),
    "arguments that are no text": (
        [{"role": "assistant", "tool_calls": [CALL, {**CALL, "function": {"name": "add", "arguments": 5}}]}],
        "messages[0].tool_calls[1].function.arguments",
        "should be a string",
    ),
    "a call of another type": (
        [{"role": "assistant", "tool_calls": [{**CALL, "type": "custom"}]}],
        "messages[0].tool_calls[0].custom",
        "Field required",
    ),
    "a call of an unknown type": (
        [{"role": "assistant", "tool_calls": [{**CALL, "type": "code"}]}],
        "messages[0].tool_calls[0].type",
        "should be one of function, custom",
    ),
    "no id": ([{"role": "tool", "content": "2"}], "messages[0].tool_call_id", "Field required"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_refusal_names_the_place_in_the_messages(wrong: str) -> None:
    messages, place, reason = WRONG[wrong]
    with pytest.raises(RequestError) as caught:
        read_messages(messages)
    assert caught.value.param == place
    assert caught.value.message.startswith(f"{place}: ")
    assert reason in caught.value.message


def test_the_greatest_number_of_messages_is_read() -> None:
    assert len(read_messages([{"role": "user", "content": "Hi"}] * MAX_MESSAGES)) == MAX_MESSAGES


@pytest.mark.parametrize("value", [[], "Hi", {}, [{}] * (MAX_MESSAGES + 1)])
def test_messages_are_a_bounded_nonempty_array(value: object) -> None:
    with pytest.raises(ValueError, match=r"should (be an array of|have 1 to 8192) messages"):
        read_messages(value)


@pytest.mark.parametrize(
    ("messages", "place"),
    [
        ([{"role": "tool", "content": "2", "tool_call_id": "call_1"}], "messages[0].tool_call_id"),
        ([CALLED, {"role": "tool", "content": "2", "tool_call_id": "call_2"}], "messages[1].tool_call_id"),
        ([{"role": "function", "name": "add", "content": "2"}], "messages[0].name"),
        ([CALLED, {"role": "function", "name": "add", "content": "2"}], "messages[1].name"),
    ],
)
def test_a_result_without_its_call_is_refused(messages: list[dict[str, Any]], place: str) -> None:
    with pytest.raises(RequestError, match="in an earlier assistant message") as caught:
        plain(*messages)
    assert caught.value.param == place


TEXT = {"type": "text", "text": "x"}


def test_parts_and_calls_are_bounded_in_total() -> None:
    """Many messages of many parts each would otherwise multiply."""
    message = {"role": "assistant", "content": [TEXT] * (MAX_PARTS // 4), "tool_calls": [CALL] * (MAX_PARTS // 4)}
    assert len(read_messages([message] * 2)) == 2
    with pytest.raises(ValueError, match="at most 16384 parts and calls in total"):
        read_messages([message, message, {"role": "user", "content": [TEXT]}])


def test_the_first_wrong_part_refuses_its_message() -> None:
    with pytest.raises(RequestError) as caught:
        read_messages([{"role": "user", "content": [TEXT, *[5] * 1000]}])
    assert caught.value.param == "messages[0].content[1]"
    assert isinstance(caught.value.__cause__, ValidationError)
    assert caught.value.__cause__.error_count() == 1
