"""Answers as the input of the next request, in every form that OpenAI's own client makes of them, in strict mode."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import openai
import pytest
from openai import AsyncOpenAI
from pydantic import BaseModel

from tests.backends import WITH_SDK
from tests.gateway.apis.openai.responses.asking import CALL, THOUGHT, answering, chatting
from tests.gateway.application import app_of
from tests.gateway.fake_engine import FakeEngine
from tests.repeat import first

pytestmark = WITH_SDK


class Add(BaseModel):
    """Add two numbers."""

    a: int


JSON = '{"a": 1}'
ANSWERS = {
    "text": "Hello",
    "JSON": JSON,
    "a call": CALL,
    "reasoning and text": f"{THOUGHT}Hello",
    "reasoning and JSON": f"{THOUGHT}{JSON}",
    "reasoning and a call": f"{THOUGHT}{CALL}",
    "text and calls": f"I add.\n{CALL}\n{CALL}",
    "nothing but reasoning": THOUGHT.removesuffix("</think>\n\n"),
}


def dumps_of(answer: BaseModel) -> list[Any]:
    """Return every form of an answer, or of a part of one, that a client may send back."""
    options: list[dict[str, Any]] = [{}, {"mode": "json"}, {"exclude_none": True}, {"exclude_unset": True}]
    return [answer, *(answer.model_dump(**chosen) for chosen in options)]


@pytest.fixture(params=ANSWERS)
def engine(request: pytest.FixtureRequest) -> FakeEngine:
    return chatting(answering(ANSWERS[request.param]))


@pytest.fixture
async def client(engine: FakeEngine) -> AsyncIterator[AsyncOpenAI]:
    """OpenAI's client of a server that refuses unknown fields."""
    http: Any = httpx.AsyncClient(transport=httpx.ASGITransport(app_of(engine, strict_fields=True)))
    async with http, AsyncOpenAI(base_url="http://x/v1", api_key="none", max_retries=0, http_client=http) as client:
        yield client


QUESTION = {"role": "user", "content": "Hi"}
CHAT: dict[str, Any] = {
    "model": "tiny",
    "messages": [QUESTION],
    "tools": [openai.pydantic_function_tool(Add, name="add")],
}


async def whole_chat(client: AsyncOpenAI) -> Any:
    return (await client.chat.completions.create(**CHAT, logprobs=True, top_logprobs=2)).choices[0].message


async def parsed_chat(client: AsyncOpenAI) -> Any:
    return (await client.chat.completions.parse(**CHAT)).choices[0].message


async def streamed_chat(client: AsyncOpenAI) -> Any:
    async with client.chat.completions.stream(**CHAT, logprobs=True) as stream:
        return (await stream.get_final_completion()).choices[0].message


@pytest.mark.parametrize("ask", first(1, [whole_chat, parsed_chat, streamed_chat]))
async def test_a_message_of_chat_is_accepted_as_the_next_input(
    client: AsyncOpenAI, engine: FakeEngine, ask: Callable[[AsyncOpenAI], Any]
) -> None:
    message = await ask(client)
    results = [{"role": "tool", "tool_call_id": call.id, "content": "2"} for call in message.tool_calls or ()]
    for dump in dumps_of(message):
        again = [QUESTION, dump, *results, QUESTION]
        assert (await client.chat.completions.create(**{**CHAT, "messages": again})).choices
        assert (message.content or "") in prompt_of(engine)
        assert prompt_of(engine).count("<tool_call>") == len(results)


def prompt_of(engine: FakeEngine) -> str:
    """Return the prompt of the latest request."""
    (prompt,) = engine.generations[-1].request.prompts
    assert isinstance(prompt, str)
    return prompt


RESPONSE: dict[str, Any] = {
    "model": "tiny",
    "input": "Hi",
    "tools": [openai.pydantic_function_tool(Add, name="add")["function"] | {"type": "function"}],
}
LOGPROBS: dict[str, Any] = {"top_logprobs": 2, "include": ["message.output_text.logprobs"]}


async def whole_response(client: AsyncOpenAI) -> list[BaseModel]:
    return list((await client.responses.create(**RESPONSE, **LOGPROBS)).output)


async def parsed_response(client: AsyncOpenAI) -> list[BaseModel]:
    return list((await client.responses.parse(**RESPONSE)).output)


async def streamed_response(client: AsyncOpenAI) -> list[BaseModel]:
    async with client.responses.stream(**RESPONSE, **LOGPROBS) as stream:
        return list((await stream.get_final_response()).output)


async def items_of_a_stream(client: AsyncOpenAI) -> list[BaseModel]:
    events = await client.responses.create(**RESPONSE, **LOGPROBS, stream=True)
    return [event.item async for event in events if event.type == "response.output_item.done"]


async def stored_response(client: AsyncOpenAI) -> list[BaseModel]:
    return list((await client.responses.retrieve((await client.responses.create(**RESPONSE)).id)).output)


async def stored_input(client: AsyncOpenAI) -> list[BaseModel]:
    """Return the input items of a second response, which were the output of the first one."""
    output = [item.model_dump() for item in await whole_response(client)]
    again = await client.responses.create(**{**RESPONSE, "input": [*output, *results_of(output)]})
    return [item async for item in client.responses.input_items.list(again.id, order="asc")]


def results_of(items: list[Any]) -> list[dict[str, Any]]:
    """Return the outputs of the calls among items."""
    calls = [item["call_id"] for item in items if item["type"] == "function_call"]
    return [{"type": "function_call_output", "call_id": call, "output": "2"} for call in calls]


RESPONSES = [whole_response, parsed_response, streamed_response, items_of_a_stream, stored_response, stored_input]


@pytest.mark.parametrize("ask", RESPONSES)
async def test_items_of_a_response_are_accepted_as_the_next_input(
    client: AsyncOpenAI, engine: FakeEngine, ask: Callable[[AsyncOpenAI], Any]
) -> None:
    items = await ask(client)
    known = [item.model_dump() for item in items]
    results = [] if ask is stored_input else results_of(known)
    texts = [part["text"] for item in known if item["type"] == "message" for part in item["content"]]
    for dumps in zip(*map(dumps_of, items), strict=True):
        again = {**RESPONSE, "input": [QUESTION, *dumps, *results, QUESTION]}
        assert (await client.responses.create(**again)).output
        assert all(text in prompt_of(engine) for text in texts)
        assert prompt_of(engine).count("<tool_call>") == sum(item["type"] == "function_call" for item in known)


ECHOED = ("instructions", "metadata", "parallel_tool_calls", "text", "tool_choice", "tools", "temperature", "top_p")


async def test_what_a_response_repeats_of_its_request_is_accepted_again(client: AsyncOpenAI) -> None:
    response = await client.responses.create(**RESPONSE, instructions="Add.", text={"verbosity": "low"})
    for dump in dumps_of(response):
        repeated = {name: getattr(dump, name) if dump is response else dump.get(name) for name in ECHOED}
        assert (await client.responses.create(**{**RESPONSE, **repeated})).output


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")  # the SDK declares `parsed` as None
@pytest.mark.parametrize("engine", ["JSON", "reasoning and JSON"], indirect=True)
async def test_a_parsed_answer_is_accepted_as_the_next_input(client: AsyncOpenAI, engine: FakeEngine) -> None:
    message = (await client.chat.completions.parse(**CHAT, response_format=Add)).choices[0].message
    items = (await client.responses.parse(**RESPONSE, text_format=Add)).output
    assert message.parsed == Add(a=1)
    for dump in dumps_of(message):
        await client.chat.completions.create(**{**CHAT, "messages": [QUESTION, dump, QUESTION]})
        assert JSON in prompt_of(engine)
    for dumps in zip(*map(dumps_of, items), strict=True):
        await client.responses.create(**{**RESPONSE, "input": [QUESTION, *dumps, QUESTION]})
        assert JSON in prompt_of(engine)
