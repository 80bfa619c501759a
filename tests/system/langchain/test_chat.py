"""LangChain's `ChatOpenAI` over chat completions and over responses: right answers, in its types."""

from collections.abc import Iterable
from functools import reduce
from operator import add as add_up
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from openai import BadRequestError
from pydantic import BaseModel, ConfigDict, Field

pytestmark = pytest.mark.anyio

SUM = "What is 17 plus 25?"
TOLD = "17+25=42"
NAMED = """Repeat '{"name": "Ann"}'"""


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class Add(BaseModel):
    """Add two numbers."""

    a: int
    b: int


@pytest.fixture(scope="module", params=[False, True], ids=["chat completions", "responses"])
def by_responses(request: pytest.FixtureRequest) -> bool:
    """The route that LangChain uses."""
    route: bool = request.param
    return route


@pytest.fixture(scope="module")
def model(options: dict[str, Any], by_responses: bool) -> ChatOpenAI:
    return ChatOpenAI(
        **options, temperature=0, stream_usage=True, max_completion_tokens=100, use_responses_api=by_responses
    )


def joined(chunks: Iterable[Any]) -> AIMessageChunk:
    whole: AIMessageChunk = reduce(add_up, chunks)
    return whole


def check_usage(message: AIMessage) -> None:
    usage = message.usage_metadata
    assert usage is not None
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    assert usage["input_tokens"] > 0 < usage["output_tokens"]


def test_invoke_returns_the_answer(model: ChatOpenAI) -> None:
    message = model.invoke([SystemMessage("Be brief."), HumanMessage(SUM)])
    assert message.text == TOLD
    assert message.response_metadata["model_name"] == "tiny"
    check_usage(message)


def test_stream_joins_to_the_answer(model: ChatOpenAI) -> None:
    chunks = list(model.stream(SUM))
    assert len(chunks) > 3
    whole = joined(chunks)
    assert whole.text == TOLD
    check_usage(whole)


def test_batch_returns_every_answer(model: ChatOpenAI) -> None:
    assert [message.text for message in model.batch([SUM] * 3)] == [TOLD] * 3


async def test_async_forms_return_the_same_answers(async_options: dict[str, Any], by_responses: bool) -> None:
    model = ChatOpenAI(**async_options, temperature=0, use_responses_api=by_responses)
    assert (await model.ainvoke(SUM)).text == TOLD
    assert "".join([chunk.text async for chunk in model.astream(SUM)]) == TOLD
    assert [message.text for message in await model.abatch([SUM] * 2)] == [TOLD] * 2


def test_a_call_its_result_and_the_answer(model: ChatOpenAI) -> None:
    bound = model.bind_tools([add])
    asked = HumanMessage(SUM)
    called = bound.invoke([asked])
    (call,) = called.tool_calls
    assert (call["name"], call["args"]) == ("add", {"a": 17, "b": 25})
    result = add.invoke(call)
    assert isinstance(result, ToolMessage)
    assert bound.invoke([asked, called, result]).text == "The answer is 42."


def test_a_call_streams(model: ChatOpenAI) -> None:
    (call,) = joined(model.bind_tools([add]).stream(SUM)).tool_calls
    assert (call["name"], call["args"]) == ("add", {"a": 17, "b": 25})


@pytest.mark.parametrize("choice", ["any", "add"])
def test_a_call_can_be_demanded(model: ChatOpenAI, choice: str) -> None:
    bound = model.bind_tools([add], tool_choice=choice, parallel_tool_calls=False)
    assert [call["args"] for call in bound.invoke(SUM).tool_calls] == [{"a": 17, "b": 25}]


def test_strict_tools_get_valid_arguments(model: ChatOpenAI) -> None:
    (call,) = model.bind_tools([Add], strict=True, tool_choice="Add", parallel_tool_calls=False).invoke(SUM).tool_calls
    assert Add(**call["args"]) == Add(a=17, b=25)


class Named(BaseModel):
    """The person in a text."""

    model_config = ConfigDict(extra="forbid")
    name: str = Field(max_length=20)


def test_structured_output_by_a_schema(model: ChatOpenAI) -> None:
    assert model.with_structured_output(Named, method="json_schema", strict=True).invoke(NAMED) == Named(name="Ann")
    whole = model.with_structured_output(Named.model_json_schema(), method="json_schema", include_raw=True)
    told = whole.invoke(NAMED)
    assert isinstance(told, dict)
    assert told["parsed"] == {"name": "Ann"}
    check_usage(told["raw"])


def test_structured_output_streams(model: ChatOpenAI) -> None:
    parts = list(model.with_structured_output(Named.model_json_schema(), method="json_schema").stream(NAMED))
    assert parts[-1] == {"name": "Ann"}
    assert len(parts) > 1


def test_structured_output_by_a_call(model: ChatOpenAI) -> None:
    assert model.with_structured_output(Add, method="function_calling").invoke(SUM) == Add(a=17, b=25)


def test_structured_output_by_mode(model: ChatOpenAI) -> None:
    assert model.with_structured_output(None, method="json_mode").invoke(NAMED) == {"name": "Ann"}


def test_an_impossible_request_is_a_bad_request(model: ChatOpenAI) -> None:
    with pytest.raises(BadRequestError) as caught:
        model.invoke(SUM, temperature=3)
    assert caught.value.param == "temperature"


def test_log_probabilities_are_returned(options: dict[str, Any]) -> None:
    model = ChatOpenAI(**options, temperature=0, logprobs=True, top_logprobs=2)
    told = model.invoke(SUM).response_metadata["logprobs"]["content"]
    assert "".join(token["token"] for token in told) == TOLD
    assert all(len(token["top_logprobs"]) == 2 for token in told)


def test_several_choices_are_generated(options: dict[str, Any]) -> None:
    (generations,) = (
        ChatOpenAI(**options, temperature=2, n=3, seed=1, max_completion_tokens=4)
        .generate([[HumanMessage(SUM)]])
        .generations
    )
    assert len(generations) == 3


def test_a_response_continues_an_earlier_one(options: dict[str, Any]) -> None:
    model = ChatOpenAI(**options, temperature=0, use_responses_api=True, use_previous_response_id=True)
    first = model.invoke("Hello!")
    second = model.invoke([HumanMessage("Hello!"), first, HumanMessage(SUM)])
    assert second.text == TOLD
