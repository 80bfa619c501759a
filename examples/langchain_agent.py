"""Run a LangChain agent with tools on a local server, and print its text as it arrives.

Needs: pip install langchain langchain-openai
Usage: python examples/langchain_agent.py [URL of a running server]
"""

import sys

from langchain.agents import create_agent
from langchain.messages import AIMessageChunk, HumanMessage, ToolMessage
from langchain.tools import tool
from langchain_openai import ChatOpenAI

url = sys.argv[1] if len(sys.argv) > 1 else "http://localhost:8000"


# The model chooses a tool by its name, docstring and types.
@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
def get_weather(city: str) -> str:
    """Get the weather in a city."""
    return {"Paris": "light rain", "Rome": "sunny"}.get(city, "unknown")


model = ChatOpenAI(base_url=f"{url}/v1", api_key="not needed", model="default", temperature=0)
agent = create_agent(model, [add, get_weather])

for question in ("What is 17 plus 25?", "What is the weather in Paris?"):
    print(question)
    for message, _place in agent.stream({"messages": [HumanMessage(question)]}, stream_mode="messages"):
        if isinstance(message, ToolMessage):
            print(f"  {message.name} returns {message.content}\n  ", end="")
        elif isinstance(message, AIMessageChunk):
            print(message.text, end="", flush=True)
    print()
