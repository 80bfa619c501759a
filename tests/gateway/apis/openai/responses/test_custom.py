"""Calls of custom tools in responses: items, events, and input again."""

import json
from typing import Any

import pytest

from tests.gateway.apis.openai.responses.asking import PATH, answering, chatting, events_of
from tests.gateway.application import app_of
from tests.gateway.asgi import post

pytestmark = pytest.mark.anyio

INPUT = 'print("é")\n\\'
CALL = f'<tool_call>\n{{"name": "run", "arguments": {json.dumps({"input": INPUT})}}}\n</tool_call>'
GRAMMAR = {"type": "grammar", "syntax": "regex", "definition": "p[^z]*"}
RUN = {"type": "custom", "name": "run", "description": "Runs.", "format": GRAMMAR}


async def test_a_call_is_an_item_with_its_input() -> None:
    choice = {"type": "custom", "name": "run"}
    fields: dict[str, Any] = {"input": "Hi", "tools": [RUN, {"type": "custom", "name": "b"}], "tool_choice": choice}
    answer = (await post(app_of(chatting(answering(CALL))), PATH, fields)).json
    (call,) = answer["output"]
    assert call["id"].startswith("ctc_")
    assert call["call_id"].startswith("call_")
    assert (call["type"], call["status"], call["name"], call["input"]) == (
        "custom_tool_call",
        "completed",
        "run",
        INPUT,
    )
    assert answer["tools"] == [RUN, {"type": "custom", "name": "b", "format": {"type": "text"}}]
    assert answer["tool_choice"] == choice


async def test_a_call_has_its_own_events() -> None:
    fields = {"input": "Hi", "tools": [RUN], "stream": True}
    events = events_of((await post(app_of(chatting(answering(CALL))), PATH, fields)).content)
    added, *deltas, done, ended = events[2:-1]
    assert (added["type"], added["item"]["input"]) == ("response.output_item.added", "")
    assert {event["type"] for event in deltas} == {"response.custom_tool_call_input.delta"}
    assert "".join(event["delta"] for event in deltas) == INPUT
    assert (done["type"], done["input"]) == ("response.custom_tool_call_input.done", INPUT)
    assert {event["item_id"] for event in (*deltas, done)} == {added["item"]["id"]} == {ended["item"]["id"]}
    assert ended["item"]["input"] == INPUT


@pytest.mark.parametrize("stored", [False, True])
async def test_a_call_and_its_output_become_input(stored: bool) -> None:
    engine = chatting(answering(CALL))
    app = app_of(engine)
    first = (await post(app, PATH, {"input": "Hi", "tools": [RUN]})).json
    (call,) = first["output"]
    output = {"type": "custom_tool_call_output", "call_id": call["call_id"], "output": "fine"}
    fields: dict[str, Any] = (
        {"input": [output], "previous_response_id": first["id"]} if stored else {"input": [call, output]}
    )
    reply = await post(app, PATH, {**fields, "tools": [RUN]})
    assert reply.status == 200, reply.content
    prompt = engine.prompt
    assert '"name": "run"' in prompt
    assert "tool\nfine" in prompt
    inputs = (await post(app, f"{PATH}/input_tokens", {**fields, "tools": [RUN]})).json
    assert inputs["input_tokens"] > 0


@pytest.mark.parametrize("stream", [False, True])
async def test_malformed_calls_are_incomplete_and_what_is_behind_them_is_complete(stream: bool) -> None:
    broken = CALL.replace('"}}', '", 1}}')
    fields = {"input": "Hi", "tools": [RUN], "stream": stream}
    answer = await post(app_of(chatting(answering(f"{broken}{CALL}{broken}"))), PATH, fields)
    output = events_of(answer.content)[-1]["response"]["output"] if stream else answer.json["output"]
    calls = [item["status"] for item in output if item["type"] == "custom_tool_call"]
    assert calls == ["incomplete", "completed", "incomplete"]
    assert {item["status"] for item in output if item["type"] == "message"} == {"completed"}
