"""Tools by OpenAI's own client: the model calls one, gets its result, and answers from it."""

from typing import Any

import pytest
from openai import AsyncOpenAI, OpenAI, pydantic_function_tool
from openai.types.chat import ChatCompletion, ChatCompletionMessage
from pydantic import BaseModel

from tests.backends import WITH_SDK

pytestmark = WITH_SDK


class Add(BaseModel):
    """Add two numbers."""

    a: int
    b: int


class Weather(BaseModel):
    """Get the weather in a city."""

    city: str


TOOLS: list[Any] = [pydantic_function_tool(Add, name="add"), pydantic_function_tool(Weather, name="get_weather")]
SUM = "What is 17 plus 25?"


def asked(*messages: Any, **fields: Any) -> dict[str, Any]:
    return {"model": "tiny", "temperature": 0, "tools": TOOLS, "messages": [*messages], **fields}


def user(text: str) -> Any:
    return {"role": "user", "content": text}


def only_message(answer: ChatCompletion, reason: str) -> ChatCompletionMessage:
    (choice,) = answer.choices
    assert choice.finish_reason == reason
    return choice.message


@pytest.mark.parametrize(
    ("question", "call", "result", "told"),
    [
        (SUM, ("add", Add(a=17, b=25)), "42", "The answer is 42."),
        ("What is the weather in Paris?", ("get_weather", Weather(city="Paris")), "rain", "The weather in Paris: rain"),
    ],
)
def test_a_call_its_result_and_the_answer(
    client: OpenAI, question: str, call: tuple[str, BaseModel], result: str, told: str
) -> None:
    first = only_message(client.chat.completions.create(**asked(user(question))), "tool_calls")
    (made,) = first.tool_calls or []
    assert made.type == "function"
    assert first.content is None
    assert (made.function.name, type(call[1]).model_validate_json(made.function.arguments)) == call
    outcome = {"role": "tool", "tool_call_id": made.id, "content": result}
    second = client.chat.completions.create(**asked(user(question), first, outcome))
    assert only_message(second, "stop").content == told


def test_a_call_is_streamed(client: OpenAI) -> None:
    chunks = list(client.chat.completions.create(**asked(user(SUM)), stream=True))
    pieces = [piece for chunk in chunks for piece in chunk.choices[0].delta.tool_calls or []]
    functions = [piece.function for piece in pieces if piece.function]
    assert {piece.index for piece in pieces} == {0}
    assert [piece.id is None for piece in pieces] == [False] + [True] * (len(pieces) - 1)
    assert [function.name for function in functions if function.name] == ["add"]
    assert Add.model_validate_json("".join(function.arguments or "" for function in functions)) == Add(a=17, b=25)
    assert chunks[-1].choices[0].finish_reason == "tool_calls"
    assert not any(chunk.choices[0].delta.content for chunk in chunks)


def test_arguments_are_parsed_into_models(client: OpenAI) -> None:
    message = client.chat.completions.parse(**asked(user(SUM))).choices[0].message
    assert [call.function.parsed_arguments for call in message.tool_calls or []] == [Add(a=17, b=25)]


async def test_the_stream_helper_parses_arguments(client: OpenAI, async_client: AsyncOpenAI) -> None:
    with client.chat.completions.stream(**asked(user(SUM))) as stream:
        done = [event for event in stream if event.type == "tool_calls.function.arguments.done"]
    assert [(event.name, event.parsed_arguments) for event in done] == [("add", Add(a=17, b=25))]
    async with async_client.chat.completions.stream(**asked(user(SUM))) as async_stream:
        message = (await async_stream.get_final_completion()).choices[0].message
    assert [call.function.parsed_arguments for call in message.tool_calls or []] == [Add(a=17, b=25)]


def test_the_model_may_answer_without_a_call(client: OpenAI) -> None:
    free = only_message(client.chat.completions.create(**asked(user("Hello!"))), "stop")
    assert (free.content or "").startswith("Hello!")
    assert free.tool_calls is None
    forbidden = only_message(client.chat.completions.create(**asked(user(SUM), tool_choice="none")), "stop")
    assert forbidden.tool_calls is None


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "add"}}])
def test_a_call_can_be_demanded(client: OpenAI, choice: Any) -> None:
    demanded = asked(user(SUM), tool_choice=choice, parallel_tool_calls=False)
    message = only_message(client.chat.completions.create(**demanded), "tool_calls")
    (call,) = message.tool_calls or []
    assert call.type == "function"
    assert Add.model_validate_json(call.function.arguments) == Add(a=17, b=25)
