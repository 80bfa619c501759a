"""Prepared requests: they cross between processes, have few objects, and encode large parts only once."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

import anyio
import anyio.lowlevel
import orjson
import pytest

from engine import Finished, FinishReason, Sampling
from gateway.apis.openai.responses.call import ResponseCall, prepare_response
from gateway.apis.openai.responses.encoded import EncodedItem, EncodedResponse
from gateway.apis.openai.responses.request import ResponseBody
from gateway.apis.openai.responses.response import ResponseAnswer
from gateway.apis.openai.responses.stream import ResponseEvents
from gateway.apis.openai.responses.tokens import SLICE
from gateway.chat.conversation import ChatPrompt
from gateway.chat.rendering import append_items, render
from gateway.chat.template_key import TemplateKey
from gateway.preparation import codec
from tests.gateway.apis.openai.responses.asking import TEMPLATE, TOOL, details_of

SAID = {"role": "user", "content": "Hi"}
BODIES: dict[str, dict[str, Any]] = {
    "text": {"input": "Hi"},
    "items": {
        "input": [
            SAID,
            {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "hm"}]},
            {"type": "function_call", "call_id": "c", "name": "add", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "7"}]},
            {"type": "item_reference", "id": "msg_1"},
        ]
    },
    "continued": {"previous_response_id": "resp_1", "instructions": "Be.", "store": False, "stream": True},
    "tools": {"input": "Hi", "tools": [TOOL], "tool_choice": {"type": "function", "name": "add"}, "background": True},
    "namespace": {
        "input": "Hi",
        "tools": [{"type": "namespace", "name": "crm", "description": "", "tools": [TOOL]}, {"type": "web_search"}],
    },
    "schema": {"input": "Hi", "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}}},
    "sampling": {"input": "Hi", "logit_bias": {"5": 1}, "stop": ["a"], "seed": -1, "top_logprobs": 2, "user": "me"},
}


def prepared(fields: Mapping[str, Any]) -> ResponseCall:
    return prepare_response(ResponseBody.model_validate(fields))


def objects(value: object) -> int:
    """Return the number of objects in a prepared value."""
    if is_dataclass(value):
        return 1 + sum(objects(getattr(value, field.name)) for field in fields(value))
    if isinstance(value, Mapping):
        return 1 + sum(map(objects, value.values()))
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return 1 + sum(map(objects, value))
    return 1


def prompt_of(call: ResponseCall) -> ChatPrompt:
    items = [item.json for item in call.inputs if isinstance(item, EncodedItem)]
    return render(TemplateKey(TEMPLATE, None, "", "", ()), append_items(call.conversation, items))


@pytest.mark.parametrize("fields", BODIES.values(), ids=list(BODIES))
def test_a_prepared_request_crosses_between_processes(fields: dict[str, Any]) -> None:
    call = prepared(fields)
    assert codec.decode(codec.encode(call), ResponseCall) == call


def test_a_prompt_crosses_between_processes() -> None:
    prompt = prompt_of(prepared(BODIES["tools"]))
    assert codec.decode(codec.encode(prompt), ChatPrompt) == prompt


def test_a_prepared_request_has_no_object_for_a_part_a_tool_or_a_schema() -> None:
    def sent(count: int) -> dict[str, Any]:
        properties = {f"p{number}": {"type": "integer"} for number in range(count)}
        tools = [{**TOOL, "name": f"f{at}", "parameters": {"properties": properties}} for at in range(min(count, 10))]
        said = {"role": "user", "content": [{"type": "input_text", "text": "a"}] * count}
        metadata = {str(number): "x" for number in range(min(count, 16))}
        kwargs = {"list": list(range(count))}
        return {"input": [said], "tools": tools, "metadata": metadata, "chat_template_kwargs": kwargs}

    assert objects(prepared(sent(1000))) == objects(prepared(sent(1)))


def test_the_instructions_come_before_the_items() -> None:
    assert prompt_of(prepared({**BODIES["text"], "instructions": "Be."})).text == (
        "<|im_start|>system\nBe.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )


def test_no_event_encodes_the_fields_of_the_request_again() -> None:
    echo = b'{"tools": [ "as it was encoded" ]}'
    options = replace(prepared(BODIES["text"]).options, echo=echo)
    answer = ResponseAnswer("tiny", options, prompt_of(prepared(BODIES["text"])), Sampling())
    events = b"".join(ResponseEvents(answer, options).encode([], []))
    assert events.count(echo[1:]) == 2
    assert answer.content().to_json().endswith(echo[1:])


@pytest.mark.anyio
async def test_other_work_runs_while_a_long_answer_is_read() -> None:
    call = prepared(BODIES["text"])
    answer = ResponseAnswer("tiny", call.options, prompt_of(call), call.request.sampling)
    text = "a" * 100 * SLICE
    turns = 0

    async def work() -> None:
        nonlocal turns
        while True:
            await anyio.lowlevel.checkpoint()
            turns += 1

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(work)
        await answer.add_whole([1], Finished(0, text, FinishReason.STOP, len(text), 0, details_of(text)))
        tasks.cancel_scope.cancel()
    assert turns > 50
    assert answer.ended


def test_a_response_is_joined_of_its_encoded_parts() -> None:
    items = tuple(EncodedItem(name, b'{ "id":"%b" }' % name.encode()) for name in ("a", "b"))
    response = EncodedResponse(b'{"id":"resp_1"}', items, b'{ "store":true}')
    assert response.to_json() == b'{"id":"resp_1","output":[{ "id":"a" },{ "id":"b" }], "store":true}'
    assert orjson.dumps(response.fragment()) == response.to_json()
