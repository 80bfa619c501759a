"""LangChain's agent: it calls a local tool, and answers from its result."""

from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, tool
from langchain_openai import ChatOpenAI

pytestmark = pytest.mark.anyio


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
def get_weather(city: str) -> str:
    """Get the weather in a city."""
    return {"Paris": "light rain"}[city]


TOOLS: list[BaseTool] = [add, get_weather]


@pytest.fixture(params=[False, True], ids=["chat completions", "responses"])
def by_responses(request: pytest.FixtureRequest) -> bool:
    """The route that LangChain uses."""
    route: bool = request.param
    return route


def agent(options: dict[str, Any], by_responses: bool) -> Any:
    return create_agent(ChatOpenAI(**options, temperature=0, use_responses_api=by_responses), TOOLS)


def asked(text: str) -> Any:
    return {"messages": [HumanMessage(text)]}


def check(messages: list[Any], name: str, answer: str) -> None:
    _question, call, result, told = messages
    assert isinstance(call, AIMessage)
    assert [made["name"] for made in call.tool_calls] == [name]
    assert isinstance(result, ToolMessage)
    assert told.text == answer


@pytest.mark.parametrize(
    ("question", "name", "answer"),
    [
        ("What is 17 plus 25?", "add", "The answer is 42."),
        ("What is the weather in Paris?", "get_weather", "The weather in Paris: light rain"),
    ],
)
def test_an_agent_uses_its_tools(
    options: dict[str, Any], by_responses: bool, question: str, name: str, answer: str
) -> None:
    check(agent(options, by_responses).invoke(asked(question))["messages"], name, answer)


async def test_an_async_agent(async_options: dict[str, Any], by_responses: bool) -> None:
    ended = await agent(async_options, by_responses).ainvoke(asked("What is 17 plus 25?"))
    check(ended["messages"], "add", "The answer is 42.")


def test_an_agent_streams_its_words(options: dict[str, Any], by_responses: bool) -> None:
    pieces = agent(options, by_responses).stream(asked("What is 17 plus 25?"), stream_mode="messages")
    told = [message for message, place in pieces if place["langgraph_node"] == "model"]
    assert len(told) > 4
    assert "".join(message.text for message in told) == "The answer is 42."
