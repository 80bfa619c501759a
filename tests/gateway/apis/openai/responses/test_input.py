"""Every input item, in its stored form and as a chat message."""

import re
import tracemalloc
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import RequestError
from gateway.apis.fields.parts import MAX_PARTS
from gateway.apis.openai.responses.encoded import EncodedItem
from gateway.apis.openai.responses.input import MAX_ITEMS, read_input
from gateway.apis.openai.responses.items import ENCODED_REASONING, decode_reasoning, encode_reasoning
from gateway.apis.openai.responses.references import encode_input, resolve
from gateway.apis.openai.responses.request import ResponseBody
from gateway.chat.transcript import with_items

CALL = {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": '{"a":1}'}
OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "7"}
CHAT_CALL = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]}


def stored(value: object) -> list[Any]:
    """Return the items as JSON."""
    return [orjson.loads(item.json) for item in resolve(encode_input(read_input(value)), {})]


def messages(*items: dict[str, Any], instructions: str | None = None) -> list[dict[str, Any]]:
    body = ResponseBody.model_validate({"input": list(items), "instructions": instructions})
    return list(with_items(body.conversation().messages, stored(list(items))))


def said(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": text}


def test_a_string_is_a_user_message() -> None:
    (item,) = stored("Hello")
    assert item.pop("id").startswith("msg_")
    content = [{"type": "input_text", "text": "Hello"}]
    assert item == {"type": "message", "role": "user", "status": "completed", "content": content}


@pytest.mark.parametrize(
    ("given", "part"),
    [
        (said("user", "a"), {"type": "input_text", "text": "a"}),
        (said("developer", "a"), {"type": "input_text", "text": "a"}),
        (said("assistant", "a"), {"type": "output_text", "text": "a", "annotations": [], "logprobs": []}),
        (
            {"role": "assistant", "content": [{"type": "output_text", "text": "a", "annotations": [{"x": 1}]}]},
            {"type": "output_text", "text": "a", "annotations": [], "logprobs": []},
        ),
        ({"role": "assistant", "content": [{"type": "refusal", "refusal": "a"}]}, {"type": "refusal", "refusal": "a"}),
    ],
)
def test_message_parts_depend_on_the_role(given: dict[str, Any], part: dict[str, Any]) -> None:
    (item,) = stored([given])
    assert item["content"] == [part]


@pytest.mark.parametrize("given", [CALL, OUTPUT, THOUGHT, said("user", "a")])
def test_an_id_is_kept_or_made(given: dict[str, Any]) -> None:
    (named,) = stored([{**given, "id": "mine"}])
    assert named["id"] == "mine"
    first, second = stored([{**given, "id": None}] * 2)
    assert first["id"] != second["id"]


def test_stored_items_can_be_sent_again() -> None:
    items = stored([said("user", "a"), THOUGHT, said("assistant", "b"), CALL, OUTPUT])
    assert stored(items) == items


def test_a_reference_stands_for_a_stored_item() -> None:
    item = {"type": "message", "role": "user", "status": "completed", "content": []}
    known: dict[str, EncodedItem] = {name: EncodedItem(name, orjson.dumps(item)) for name in ("msg_1", "msg_2")}
    items = encode_input(read_input([{"type": "item_reference", "id": "msg_2"}, {"id": "msg_1"}]))
    assert resolve(items, known) == [known["msg_2"], known["msg_1"]]


def test_reasoning_without_a_text_stands_for_the_stored_item_or_is_left_out() -> None:
    kept = EncodedItem("rs_1", orjson.dumps(THOUGHT))
    ids = ("rs_1", "rs_2", None)
    items = encode_input(read_input([{"type": "reasoning", "id": name, "summary": []} for name in ids]))
    assert resolve(items, {"rs_1": kept}) == [kept]


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_encoded_reasoning_has_its_words(text: str) -> None:
    assert decode_reasoning(encode_reasoning(text)) == text


@given(st.text("Ag/+= \nä", max_size=9))
def test_the_words_are_those_that_the_documented_pattern_allows(encoded: str) -> None:
    content = f"plain.{encoded}"
    assert (decode_reasoning(content) is None) is (re.fullmatch(ENCODED_REASONING, content) is None)


def test_long_encoded_reasoning_takes_little_memory() -> None:
    content = encode_reasoning("a" * 2**20)
    tracemalloc.start()
    try:
        decode_reasoning(content)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 8 * 2**20


@pytest.mark.parametrize("content", ["", "gAAAAABpM0Yj-", "plain", "aG0=", "plain.aG", "plain.aG0=\n", "plain.a b="])
def test_encrypted_content_of_other_servers_has_no_words(content: str) -> None:
    assert decode_reasoning(content) is None


def test_encoded_reasoning_is_the_item_that_it_was() -> None:
    item = {**THOUGHT, "status": "completed", "encrypted_content": encode_reasoning("hm")}
    for sent in (item, {**item, "content": []}, {**item, "content": None}):
        assert stored([sent]) == [item]


def test_encrypted_reasoning_of_other_servers_does_not_replace_a_text() -> None:
    item = {**THOUGHT, "status": "completed", "encrypted_content": "gAAAAA"}
    assert stored([item]) == [item]


@pytest.mark.parametrize(
    ("given", "param", "words"),
    [
        ([5], "input[0]", "should be an object"),
        ([said("user", "a"), {"type": "web_search_call"}], "input[1].type", "should be one of message, reasoning"),
        ([{"type": {}}], "input[0].type", "should be one of"),
        ([{"role": "tool", "content": "a"}], "input[0].role", "should be 'user'"),
        ([{"role": "user"}], "input[0].content", "Field required"),
        ([{"role": "user", "content": 5}], "input[0].content", "should be a string or an array of parts"),
        ([{"role": "user", "content": [{"type": "input_image"}]}], "input[0].content[0]", "text only, no images"),
        ([{"role": "user", "content": [{"type": "input_file"}]}], "input[0].content[0]", "text only, no files"),
        ([{"role": "user", "content": [{"type": "input_audio"}]}], "input[0].content[0]", "text only, no audio"),
        ([{"role": "user", "content": [{"type": "input_video"}]}], "input[0].content[0]", "text only, no video"),
        ([{**OUTPUT, "output": [{"type": "input_file"}]}], "input[0].output[0]", "no files"),
        ([{**OUTPUT, "output": [{"type": "input_audio"}]}], "input[0].output[0]", "no audio"),
        ([{**OUTPUT, "output": [{"type": "computer_screenshot"}]}], "input[0].output[0]", "no images"),
        ([{"type": "image_generation_call", "id": "ig_1", "result": ""}], "input[0]", "no images"),
        ([{"type": "computer_call_output", "call_id": "a", "output": {}}], "input[0]", "no images"),
        ([{"role": "user", "content": [{"type": "text", "text": "a"}]}], "input[0].content[0].type", "'input_text'"),
        ([{"role": "user", "content": [{"type": "input_text"}]}], "input[0].content[0].text", "Field required"),
        ([{**CALL, "arguments": {}}], "input[0].arguments", "should be a string"),
        ([{**CALL, "call_id": ""}], "input[0].call_id", "at least 1"),
        ([{**OUTPUT, "output": [{"type": "input_image"}]}], "input[0].output[0]", "no images"),
        ([{"type": "reasoning", "summary": [], "encrypted_content": "x"}], "input[0]", "encrypted reasoning"),
        ([{"type": "reasoning", "summary": [], "encrypted_content": "plain.aG"}], "input[0]", "encrypted reasoning"),
        ([{"type": "item_reference", "id": "msg_9"}], "input[0].id", "no stored item has the id 'msg_9'"),
        ([{"id": "msg_9"}, said("user", "a"), {"id": "msg_9"}], "input[2].id", "the item 'msg_9' a second time"),
    ],
)
def test_an_invalid_item_is_named_with_its_place(given: list[object], param: str, words: str) -> None:
    with pytest.raises(RequestError) as caught:
        stored(given)
    assert caught.value.param == param
    assert words in caught.value.message


MANY_PARTS = [{"type": "input_text", "text": "a"}] * (MAX_PARTS // 2 + 1)
MANY_SUMMARIES = [{"type": "summary_text", "text": "a"}] * (MAX_PARTS // 2 + 1)


@pytest.mark.parametrize(
    "given",
    [
        5,
        {},
        [said("user", "a")] * (MAX_ITEMS + 1),
        [{"role": "user", "content": MANY_PARTS}] * 2,
        [{**OUTPUT, "output": MANY_PARTS}, {"type": "reasoning", "summary": MANY_SUMMARIES}],
    ],
)
def test_an_invalid_input_is_refused(given: object) -> None:
    with pytest.raises(ValueError, match="should"):
        read_input(given)


def test_items_of_one_turn_are_one_message() -> None:
    turn = [THOUGHT, said("assistant", "b"), CALL, {**CALL, "call_id": "call_2"}]
    assert messages(said("user", "a"), *turn, OUTPUT, {**OUTPUT, "call_id": "call_2"}, instructions="Be.") == [
        said("system", "Be."),
        said("user", "a"),
        {**said("assistant", "b"), "reasoning_content": "hm", "tool_calls": [CHAT_CALL, {**CHAT_CALL, "id": "call_2"}]},
        {"role": "tool", "tool_call_id": "call_1", "name": "f", "content": "7"},
        {"role": "tool", "tool_call_id": "call_2", "name": "f", "content": "7"},
    ]


def test_items_of_two_turns_are_two_messages() -> None:
    assert messages(THOUGHT, CALL, THOUGHT, said("assistant", "b"), said("assistant", "c")) == [
        {"role": "assistant", "content": None, "reasoning_content": "hm", "tool_calls": [CHAT_CALL]},
        {**said("assistant", "b"), "reasoning_content": "hm"},
        said("assistant", "c"),
    ]


def test_a_summary_replaces_missing_reasoning() -> None:
    summary = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "short"}]}
    assert messages(summary) == [{"role": "assistant", "content": None, "reasoning_content": "short"}]


def test_text_parts_are_joined_by_lines() -> None:
    parts = [{"type": "input_text", "text": text} for text in ("a", "b")]
    assert messages({"role": "user", "content": parts}) == [said("user", "a\nb")]


def test_an_output_needs_its_call() -> None:
    with pytest.raises(RequestError, match="no function call before its output has the call_id 'call_1'"):
        messages(OUTPUT, CALL)
