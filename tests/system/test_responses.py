"""OpenAI's own client and document against `/v1/responses` of the program, on a real model with a chat template."""

from collections.abc import Iterator
from typing import Any, Literal

import openai
import pytest
from openai import OpenAI
from openai.types.responses import (
    Response,
    ResponseFunctionToolCall,
    ResponseIncompleteEvent,
    ResponseOutputMessage,
    ResponseOutputText,
)
from openai.types.responses.response_output_text import Logprob
from pydantic import BaseModel

from tests.backends import WITH_SDK
from tests.program import ROOT, serving_program
from tests.system.description import Description

pytestmark = WITH_SDK

TEMPLATE = ROOT / "engine" / "embedded" / "training" / "chat_template.jinja"
ASKED: dict[str, Any] = {"model": "tiny", "input": "Once upon a time", "temperature": 0, "max_output_tokens": 16}
ON_AND_ON: dict[str, Any] = {
    "model": "tiny",
    "input": "Once",
    "max_output_tokens": 15_000,
    "extra_body": {"ignore_eos": True, "speculative": False},
}


class Add(BaseModel):
    """Add two numbers."""

    a: Literal[1, 2]
    b: Literal[3, 4]


ADD: dict[str, Any] = {"type": "function", **openai.pydantic_function_tool(Add)["function"]}
CALLED: dict[str, Any] = {"tools": [openai.pydantic_function_tool(Add)], "tool_choice": "required"}


@pytest.fixture(scope="module")
def url(anyio_backend: str) -> Iterator[str]:
    flags = ("--slots", "2", "--context", "16384", "--alias", "tiny", "--chat-template", str(TEMPLATE))
    with serving_program(*flags, "--async-backend", anyio_backend) as (_process, port):
        yield f"http://127.0.0.1:{port}/v1"


def until_idle(client: OpenAI) -> None:
    slots = client.with_options(base_url=str(client.base_url).replace("/v1", ""))
    while any(slot["is_processing"] for slot in slots.get("/slots", cast_to=list[dict[str, Any]])):
        pass


def test_a_stream_is_the_same_response_in_pieces(client: OpenAI) -> None:
    whole = client.responses.create(**ASKED, top_logprobs=2)
    with client.responses.stream(**ASKED, top_logprobs=2) as stream:
        events = list(stream)
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text == whole.output_text
    last = events[-1]
    assert isinstance(last, ResponseIncompleteEvent)
    assert last.response.usage is not None
    assert whole.usage is not None
    assert last.response.usage.output_tokens == whole.usage.output_tokens == 16
    for one, other in zip(told_of(last.response), told_of(whole), strict=True):
        assert (one.token, one.bytes) == (other.token, other.bytes)
        assert one.logprob == pytest.approx(other.logprob, abs=1e-4)
        assert [top.token for top in one.top_logprobs] == [top.token for top in other.top_logprobs]


def told_of(response: Response) -> list[Logprob]:
    """Return the tokens of the only message, up to rounding: a cached prompt is not computed again."""
    (message,) = response.output
    assert isinstance(message, ResponseOutputMessage)
    (part,) = message.content
    assert isinstance(part, ResponseOutputText)
    assert part.logprobs
    assert "".join(token.token for token in part.logprobs) == part.text
    return part.logprobs


def test_a_call_is_parsed_and_answered(client: OpenAI) -> None:
    fields = {**ASKED, "max_output_tokens": 400, "parallel_tool_calls": False}
    response = client.responses.parse(**fields, **CALLED)
    (call,) = response.output
    assert isinstance(call, ResponseFunctionToolCall)
    assert call.name == "Add"
    assert isinstance(call.parsed_arguments, Add)
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "4"}
    answer = client.responses.create(**{**ASKED, "input": [output]}, previous_response_id=response.id)
    assert answer.previous_response_id == response.id
    assert answer.output_text


def test_a_conversation_needs_no_store(client: OpenAI) -> None:
    first = client.responses.create(**ASKED, store=False)
    items = [{"role": "user", "content": ASKED["input"]}, *(item.to_dict() for item in first.output)]
    again = client.responses.create(**{**ASKED, "input": [*items, {"role": "user", "content": "More"}]}, store=False)
    assert again.output_text
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(first.id)


def test_the_input_tokens_endpoint_agrees_with_usage(client: OpenAI) -> None:
    counted = client.responses.input_tokens.count(model="tiny", input=ASKED["input"])
    response = client.responses.create(**ASKED)
    assert response.usage is not None
    assert counted.input_tokens == response.usage.input_tokens


def test_a_background_response_is_cancelled(client: OpenAI) -> None:
    created = client.responses.create(**ON_AND_ON, background=True)
    assert created.status in {"queued", "in_progress"}
    assert client.responses.cancel(created.id).status == "cancelled"
    until_idle(client)
    assert client.responses.retrieve(created.id).status == "cancelled"


def test_a_background_response_is_fetched(client: OpenAI) -> None:
    response = client.responses.create(**ASKED, background=True)
    while response.status in {"queued", "in_progress"}:
        response = client.responses.retrieve(response.id)
    assert response.output_text == client.responses.create(**ASKED).output_text


def test_a_stream_that_is_left_frees_its_slot_and_is_forgotten(client: OpenAI) -> None:
    stream = client.responses.create(**ON_AND_ON, stream=True)
    created = next(stream)
    assert created.type == "response.created"
    stream.close()
    until_idle(client)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(created.response.id)


EVENTS = {
    "response.created": "ResponseCreatedEvent",
    "response.in_progress": "ResponseInProgressEvent",
    "response.output_item.added": "ResponseOutputItemAddedEvent",
    "response.content_part.added": "ResponseContentPartAddedEvent",
    "response.output_text.delta": "ResponseTextDeltaEvent",
    "response.output_text.done": "ResponseTextDoneEvent",
    "response.content_part.done": "ResponseContentPartDoneEvent",
    "response.function_call_arguments.delta": "ResponseFunctionCallArgumentsDeltaEvent",
    "response.function_call_arguments.done": "ResponseFunctionCallArgumentsDoneEvent",
    "response.output_item.done": "ResponseOutputItemDoneEvent",
    "response.completed": "ResponseCompletedEvent",
    "response.incomplete": "ResponseIncompleteEvent",
}
"""The document's name for each event."""

REQUESTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "with log-probabilities": {"top_logprobs": 2},
    "with a call": {**CALLED, "max_output_tokens": 400, "parallel_tool_calls": False},
    "with a call in a namespace": {
        "tools": [
            {"type": "namespace", "name": "sums", "description": "Sums.", "tools": [{**ADD, "description": "Adds."}]},
            {"type": "web_search"},
        ],
        "tool_choice": {"type": "function", "name": "Add"},
        "max_output_tokens": 400,
        "parallel_tool_calls": False,
    },
    "with a schema": {"text": {"format": {"type": "json_object"}}, "max_output_tokens": 32},
    "with everything": {
        "instructions": "Tell.",
        "metadata": {"a": "b"},
        "reasoning": {"effort": "low", "summary": "auto"},
        "safety_identifier": "s",
        "prompt_cache_key": "k",
        "service_tier": "auto",
        "truncation": "disabled",
        "user": "u",
    },
}


@pytest.mark.parametrize("request_", REQUESTS)
def test_openais_document_describes_our_responses(client: OpenAI, description: Description, request_: str) -> None:
    fields = {**ASKED, **as_sent(REQUESTS[request_])}
    raw = client.post("/responses", body=fields, cast_to=dict[str, Any])
    description.check(raw, "Response")
    stored = client.get(f"/responses/{raw['id']}", cast_to=dict[str, Any])
    assert stored == raw
    listed = client.get(f"/responses/{raw['id']}/input_items", cast_to=dict[str, Any])
    description.check(listed, "ResponseItemList")


@pytest.mark.parametrize("request_", REQUESTS)
def test_openais_document_describes_our_events(client: OpenAI, description: Description, request_: str) -> None:
    fields = as_sent(REQUESTS[request_])
    with client.responses.create(**{**ASKED, **fields}, stream=True) as stream:
        events: list[dict[str, Any]] = [event.to_dict() for event in stream]
    for event in events:
        description.check(event, EVENTS[event["type"]])


def test_openais_document_describes_the_rest(client: OpenAI, description: Description) -> None:
    counted = client.post("/responses/input_tokens", body={"input": "x"}, cast_to=dict[str, Any])
    description.check(counted, "TokenCountsResource")
    created = client.post("/responses", body={**ASKED, "background": True}, cast_to=dict[str, Any])
    description.check(created, "Response")
    description.check(client.post(f"/responses/{created['id']}/cancel", cast_to=dict[str, Any]), "Response")


def as_sent(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields with the tools in the shape of responses, which differs from that of the SDK's helper."""
    given = fields.get("tools", ())
    tools = [{"type": "function", **tool["function"]} if "function" in tool else tool for tool in given]
    return {**fields, "tools": tools} if tools else fields
