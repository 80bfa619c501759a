"""Output items made of deltas, and their events, which add up to the items."""

from itertools import count
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.apis.openai.responses.items import ItemStatus
from gateway.apis.openai.responses.output import ResponseOutput
from gateway.chat.deltas import CallArguments, CallBegan, ContentDelta, Delta, ReasoningDelta


def run(*deltas: Delta, status: ItemStatus = "completed") -> tuple[list[Any], list[Any]]:
    """Return the events and the items as a client reads them."""
    output = ResponseOutput(count(), encodes_reasoning=False, namespaces={})
    events = [event for delta in deltas for event in output.add(delta)]
    events += output.close(status)
    return decoded(events), [orjson.loads(item.json) for item in output.items()]


def decoded(events: object) -> list[Any]:
    """Return the events as a client reads them."""
    read: list[Any] = orjson.loads(orjson.dumps(events))
    return read


def names(events: list[Any]) -> list[str]:
    return [event["type"].removeprefix("response.") for event in events]


def test_content_is_one_message() -> None:
    events, (item,) = run(ContentDelta("a"), ContentDelta("b"))
    assert names(events) == [
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
    ]
    part = {"type": "output_text", "text": "ab", "annotations": [], "logprobs": []}
    assert item.pop("id").startswith("msg_")
    assert item == {"type": "message", "role": "assistant", "status": "completed", "content": [part]}
    assert events[0]["item"]["status"] == "in_progress"
    assert events[0]["item"]["content"] == []


def test_reasoning_and_two_calls_are_three_items() -> None:
    calls: list[Delta] = [
        CallBegan(0, "f"),
        CallArguments(0, "{"),
        CallArguments(0, "}"),
        CallBegan(1, "g"),
        CallArguments(1, "{}"),
    ]
    events, (thought, first, second) = run(ReasoningDelta("hm"), *calls)
    assert names(events) == [
        "output_item.added",
        "content_part.added",
        "reasoning_text.delta",
        "reasoning_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
    ]
    assert thought["id"].startswith("rs_")
    assert (thought["summary"], thought["content"]) == ([], [{"type": "reasoning_text", "text": "hm"}])
    assert [(call["name"], call["arguments"]) for call in (first, second)] == [("f", "{}"), ("g", "{}")]
    assert first["id"].startswith("fc_")
    assert first["call_id"].startswith("call_")
    assert first["call_id"] != second["call_id"]


def test_a_call_has_the_namespace_of_its_joined_name() -> None:
    output = ResponseOutput(count(), encodes_reasoning=False, namespaces={"a__b__c": "a__b"})
    events = decoded([*output.add(CallBegan(0, "a__b__c")), *output.add(CallBegan(1, "a__b__d", custom=True))])
    events += decoded(output.close("completed"))
    items = [event["item"] for event in events if "item" in event]
    assert [(item.get("namespace"), item["name"]) for item in items] == [("a__b", "c")] * 2 + [(None, "a__b__d")] * 2
    (done,) = (event for event in events if event["type"] == "response.function_call_arguments.done")
    assert done["name"] == "c"


def test_log_probabilities_belong_to_their_message() -> None:
    output: Any = ResponseOutput(count(), encodes_reasoning=False, namespaces={})
    first, second = {"token": "a"}, {"token": "b"}
    *_, delta = decoded(output.add(ContentDelta("a"), [first]))
    assert delta["logprobs"] == [first]
    done, part, item = (output.add(ContentDelta("b"), [second]), decoded(output.close("completed")))[1]
    assert done["logprobs"] == part["part"]["logprobs"] == item["item"]["content"][0]["logprobs"] == [first, second]


def test_an_empty_answer_is_an_empty_message() -> None:
    events, (item,) = run()
    assert names(events)[0] == "output_item.added"
    assert item["content"][0]["text"] == ""


def test_complete_reasoning_without_an_answer_is_followed_by_an_empty_message() -> None:
    events, (thought, message) = run(ReasoningDelta("hm"))
    assert (thought["status"], message["status"], message["content"][0]["text"]) == ("completed", "completed", "")
    assert names(events)[-4:] == ["content_part.added", "output_text.done", "content_part.done", "output_item.done"]


def test_reasoning_that_was_cut_is_the_only_item() -> None:
    _, (thought,) = run(ReasoningDelta("hm"), status="incomplete")
    assert (thought["type"], thought["status"]) == ("reasoning", "incomplete")


@pytest.mark.parametrize("last", [ContentDelta("a"), ReasoningDelta("a"), CallBegan(0, "f")])
def test_only_the_last_item_is_incomplete(last: Delta) -> None:
    _, items = run(ContentDelta("x"), ReasoningDelta("y"), last, status="incomplete")
    assert {item["status"] for item in items[:-1]} == {"completed"}
    assert items[-1]["status"] == "incomplete"


DELTAS = st.lists(
    st.one_of(
        st.text(min_size=1).map(ContentDelta),
        st.text(min_size=1).map(ReasoningDelta),
        st.just(CallBegan(0, "f")),
        st.text(min_size=1).map(lambda text: CallArguments(0, text)),
    )
)


@given(DELTAS)
def test_events_add_up_to_the_items(deltas: list[Delta]) -> None:
    events, items = run(*deltas)
    added = [event for event in events if event["type"] == "response.output_item.added"]
    done = [event for event in events if event["type"] == "response.output_item.done"]
    assert [event["output_index"] for event in added] == list(range(len(items)))
    assert [event["item"] for event in done] == items
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    for index, item in enumerate(items):
        text = "".join(event["delta"] for event in events if "delta" in event and event["output_index"] == index)
        assert text == (item["arguments"] if item["type"] == "function_call" else item["content"][0]["text"])
        assert added[index]["item"]["id"] == item["id"]
