"""Ollama's Python client: a chat, its stream, and a tool.

Needs: pip install ollama
Usage: python examples/ollama_sdk_chat.py [URL of a running server]
"""

import sys

from ollama import Client

QUESTION = [{"role": "user", "content": "What is 17+25? Use the tool."}]


def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: The first number.
        b: The second number.

    Returns:
        The sum.
    """
    return a + b


url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000"
with Client(url) as client:
    model = client.list().models[0].model or "default"
    answer = client.chat(model, [{"role": "user", "content": "What is 17+25?"}], options={"temperature": 0})
    print(answer.message.content)
    for piece in client.chat(model, [{"role": "user", "content": "Hello!"}], stream=True):
        print(piece.message.content, end="", flush=True)
    print()

    asked = client.chat(model, QUESTION, tools=[add], options={"temperature": 0})
    messages = [*QUESTION, asked.message]
    for call in asked.message.tool_calls or ():
        result = add(**call.function.arguments)
        print(f"  {call.function.name}({dict(call.function.arguments)}) returns {result}")
        messages.append({"role": "tool", "tool_name": call.function.name, "content": str(result)})
    print(client.chat(model, messages, tools=[add], options={"temperature": 0}).message.content)
