"""LangChain against a local server: an agent that uses tools, its words shown as they come.

Needs: pip install langchain langchain-openai
Usage: python examples/langchain_agent.py [URL of a running server]
"""

import sys

from langchain.agents import create_agent
from langchain.messages import AIMessageChunk, HumanMessage, ToolMessage
from langchain.tools import tool
from langchain_openai import ChatOpenAI

url = sys.argv[1] if len(sys.argv) > 1 else "http://localhost:8000"


# The model reads a tool's name, its text and its types, and decides by them.
@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
def get_weather(city: str) -> str:
    """Get the weather in a city."""
    return {"Paris": "light rain", "Rome": "sunny"}.get(city, "unknown")


model = ChatOpenAI(base_url=f"{url}/v1", api_key="none needed", model="default", temperature=0)
agent = create_agent(model, [add, get_weather])

for question in ("What is 17 plus 25?", "What is the weather in Paris?"):
    print(question)
    for message, _place in agent.stream({"messages": [HumanMessage(question)]}, stream_mode="messages"):
        if isinstance(message, ToolMessage):
            print(f"  {message.name} gives {message.content}\n  ", end="")
        elif isinstance(message, AIMessageChunk):
            print(message.text, end="", flush=True)
    print()
