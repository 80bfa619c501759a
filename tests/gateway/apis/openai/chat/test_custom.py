"""Calls of custom tools in chats: whole, streamed, and as input again."""

import json
from typing import Any

import pytest

from engine import Finished, FinishReason, Text
from tests.gateway.apis.openai.responses.asking import chatting
from tests.gateway.application import app_of
from tests.gateway.asgi import post
from tests.gateway.fake_engine import FakeGeneration

pytestmark = pytest.mark.anyio

PATH = "/v1/chat/completions"
RUN = {"type": "custom", "custom": {"name": "run"}}
ADD = {"type": "function", "function": {"name": "add"}}
INPUT = 'print("é")\n\\'
CALL = f'<tool_call>\n{{"name": "run", "arguments": {json.dumps({"input": INPUT})}}}\n</tool_call>'
OTHER = '<tool_call>\n{"name": "add", "arguments": {"x": 1}}\n</tool_call>'
USER = {"role": "user", "content": "Hi"}


def script(generation: FakeGeneration) -> None:
    text = f"{CALL}\n{OTHER}\n{CALL}"
    if generation.request.stream:
        generation.put(*(Text(0, letter) for letter in text))
        text = ""
    generation.put(Finished(0, text, FinishReason.STOP, 3, 0))


def shown(call: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in call.items() if name not in {"id", "index"}}


CUSTOM = {"type": "custom", "custom": {"name": "run", "input": INPUT}}
FUNCTION = {"type": "function", "function": {"name": "add", "arguments": '{"x": 1}'}}


async def test_calls_of_custom_tools_have_inputs() -> None:
    reply = await post(app_of(chatting(script)), PATH, {"messages": [USER], "tools": [RUN, ADD]})
    (choice,) = reply.json["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert [shown(call) for call in choice["message"]["tool_calls"]] == [CUSTOM, FUNCTION, CUSTOM]


async def test_inputs_are_streamed_as_they_come() -> None:
    body = {"messages": [USER], "tools": [RUN, ADD], "stream": True}
    content = (await post(app_of(chatting(script)), PATH, body)).content
    chunks = [json.loads(line[6:]) for line in content.decode().split("\n\n") if line.startswith("data: {")]
    pieces = [piece for chunk in chunks for piece in chunk["choices"][0]["delta"].get("tool_calls", ())]
    calls: dict[int, dict[str, Any]] = {}
    for piece in pieces:
        if "type" in piece:
            calls[piece["index"]] = shown(piece)
        elif "custom" in piece:
            calls[piece["index"]]["custom"]["input"] += piece["custom"]["input"]
        else:
            calls[piece["index"]]["function"]["arguments"] += piece["function"]["arguments"]
    assert list(calls.values()) == [CUSTOM, FUNCTION, CUSTOM]
    assert len([piece for piece in pieces if piece["index"] == 0]) > len(INPUT) // 2


async def test_a_call_and_its_output_become_input() -> None:
    called = {"role": "assistant", "tool_calls": [{"id": "call_1", **CUSTOM}]}
    output = {"role": "tool", "tool_call_id": "call_1", "content": "é"}
    engine = chatting(script)
    reply = await post(app_of(engine), PATH, {"messages": [USER, called, output], "tools": [RUN]})
    assert reply.status == 200, reply.content
    prompt = engine.prompt
    assert '"name": "run"' in prompt
    assert "input" in prompt
    assert "tool\né" in prompt


async def test_a_grammar_that_cannot_be_used_is_refused_by_the_field() -> None:
    bad = {"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: <|end|>"}}
    tools = [{"type": "custom", "custom": {"name": "run", "format": bad}}]
    reply = await post(app_of(chatting(script)), PATH, {"messages": [USER], "tools": tools})
    assert reply.status == 400
    assert reply.json["error"]["param"] == "tools"
