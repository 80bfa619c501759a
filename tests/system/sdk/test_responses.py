"""Responses by OpenAI's own client: right answers, in its types, stored and continued."""

import re
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.responses import FunctionToolParam, ResponseCustomToolCall, ResponseFunctionToolCall

from tests.backends import WITH_SDK

pytestmark = WITH_SDK

SUM: dict[str, Any] = {"model": "tiny", "input": "What is 17 plus 25?", "temperature": 0}
TOLD = "17+25=42"
ADD: FunctionToolParam = {
    "type": "function",
    "name": "add",
    "description": "Add two numbers.",
    "parameters": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
        "additionalProperties": False,
    },
    "strict": True,
}


def test_a_whole_response_has_its_text_and_usage(client: OpenAI) -> None:
    response = client.responses.create(**SUM, instructions="You add.", metadata={"for": "a test"})
    assert (response.object, response.status, response.model) == ("response", "completed", "tiny")
    assert response.id.startswith("resp_")
    assert response.output_text == TOLD
    assert response.metadata == {"for": "a test"}
    assert response.usage is not None
    assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens


def test_a_stream_gives_typed_events(client: OpenAI) -> None:
    with client.responses.stream(**SUM) as stream:
        events = list(stream)
        final = stream.get_final_response()
    assert [event.type for event in events][:2] == ["response.created", "response.in_progress"]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == TOLD
    assert [event.text for event in events if event.type == "response.output_text.done"] == [TOLD]
    assert events[-1].type == "response.completed"
    assert final.output_text == TOLD


async def test_the_async_client_gets_the_same_response(async_client: AsyncOpenAI) -> None:
    response = await async_client.responses.create(**SUM)
    assert response.output_text == TOLD
    events = await async_client.responses.create(**SUM, stream=True)
    assert "".join([event.delta async for event in events if event.type == "response.output_text.delta"]) == TOLD
    assert (await async_client.responses.retrieve(response.id)).output_text == TOLD
    await async_client.responses.delete(response.id)
    with pytest.raises(openai.NotFoundError):
        await async_client.responses.retrieve(response.id)


def test_a_response_continues_an_earlier_one(client: OpenAI) -> None:
    first = client.responses.create(**{**SUM, "input": "Hello!"})
    second = client.responses.create(**SUM, previous_response_id=first.id)
    alone = client.responses.create(**SUM)
    assert second.output_text == alone.output_text == TOLD
    assert second.previous_response_id == first.id
    assert second.usage is not None
    assert alone.usage is not None
    assert second.usage.input_tokens > alone.usage.input_tokens


def test_a_response_is_stored_by_default_and_until_deleted(client: OpenAI) -> None:
    kept, forgotten = client.responses.create(**SUM), client.responses.create(**SUM, store=False)
    assert client.responses.retrieve(kept.id) == kept
    (item,) = client.responses.input_items.list(kept.id)
    assert item.to_dict()["content"] == [{"type": "input_text", "text": SUM["input"]}]
    client.responses.delete(kept.id)
    for response in (kept, forgotten):
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(response.id)
        with pytest.raises(openai.BadRequestError) as caught:
            client.responses.create(**SUM, previous_response_id=response.id)
        assert caught.value.param == "previous_response_id"


def test_a_call_its_result_and_the_answer(client: OpenAI) -> None:
    first = client.responses.create(**SUM, tools=[ADD])
    (call,) = first.output
    assert isinstance(call, ResponseFunctionToolCall)
    assert (call.name, call.arguments) == ("add", '{"a": 17, "b": 25}')
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "42"}
    second = client.responses.create(**{**SUM, "input": [output]}, tools=[ADD], previous_response_id=first.id)
    assert second.output_text == "The answer is 42."


def test_a_call_is_streamed(client: OpenAI) -> None:
    with client.responses.stream(**SUM, tools=[ADD]) as stream:
        events = list(stream)
    deltas = [event.delta for event in events if event.type == "response.function_call_arguments.delta"]
    assert "".join(deltas) == '{"a": 17, "b": 25}'
    (done,) = [event for event in events if event.type == "response.output_item.done"]
    assert isinstance(done.item, ResponseFunctionToolCall)
    assert done.item.name == "add"


def test_a_custom_tool_with_a_grammar(client: OpenAI) -> None:
    form = {"type": "grammar", "syntax": "lark", "definition": 'start: "+" /[0-9]{1,3}/ "\\n"'}
    asked: dict[str, Any] = {
        **SUM,
        "tools": [{"type": "custom", "name": "count", "format": form}],
        "tool_choice": {"type": "custom", "name": "count"},
        "truncation": "auto",
    }
    first = client.responses.create(**asked)
    (call,) = first.output
    assert isinstance(call, ResponseCustomToolCall)
    assert re.fullmatch(r"\+[0-9]{1,3}\n", call.input)
    assert first.truncation == "auto"
    with client.responses.stream(**asked) as stream:
        events = list(stream)
    deltas = [event.delta for event in events if event.type == "response.custom_tool_call_input.delta"]
    (done,) = [event.input for event in events if event.type == "response.custom_tool_call_input.done"]
    assert "".join(deltas) == done == call.input
    output = {"type": "custom_tool_call_output", "call_id": call.call_id, "output": "42"}
    again = {**asked, "input": [output], "tool_choice": "none", "previous_response_id": first.id}
    assert client.responses.create(**again).output_text


def test_raw_and_streaming_responses_are_readable(client: OpenAI) -> None:
    raw = client.responses.with_raw_response.create(**SUM)
    assert raw.headers["x-request-id"] == raw.parse()._request_id
    with client.responses.with_streaming_response.create(**SUM, stream=True) as response:
        lines = [line for line in response.iter_lines() if line]
    assert lines[0] == "event: response.created"
    assert lines[-2] == "event: response.completed"


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "a tool of OpenAI's own": ({"tools": [{"type": "file_search", "vector_store_ids": ["vs_1"]}]}, "tools[0]"),
    "absurd": ({"temperature": 3}, "temperature"),
    "an unknown id": ({"previous_response_id": "resp_none"}, "previous_response_id"),
    "a picture": (
        {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "data:,", "detail": "auto"}]}]},
        "input[0].content[0]",
    ),
}


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("stream", [False, True])
def test_an_impossible_request_is_a_bad_request(client: OpenAI, bad: str, stream: bool) -> None:
    fields, param = BAD[bad]
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(**{**SUM, "stream": stream, **fields})
    assert (caught.value.param, caught.value.type) == (param, "invalid_request_error")
