"""Use Anthropic's SDK with a local server: whole and streamed messages, tool calls, token counts.

Needs: pip install anthropic
Usage: python examples/anthropic_sdk.py [URL of a running server]
"""

import sys
from typing import Any

from anthropic import Anthropic, beta_tool

url = sys.argv[1] if len(sys.argv) > 1 else "http://localhost:8000"
client = Anthropic(base_url=url, api_key="not needed")
asked: dict[str, Any] = {
    "model": "default",
    "max_tokens": 100,
    "messages": [{"role": "user", "content": "What is 17 plus 25?"}],
    "extra_body": {"temperature": 0},  # the sampling fields of all routes work here, too
}

message = client.messages.create(**asked, system="Be brief.")
print(*(block.text for block in message.content if block.type == "text"))
print(message.stop_reason, message.usage)

with client.messages.stream(**asked) as stream:
    for text in stream.text_stream:
        print(text, end="", flush=True)
    print()

print(client.messages.count_tokens(model="default", messages=asked["messages"]))


@beta_tool
def add(a: int, b: int) -> str:
    """Add two numbers."""
    print(f"  add({a}, {b})")
    return str(a + b)


# The runner calls the function and sends its result back, until the model answers.
answer = client.beta.messages.tool_runner(**asked, tools=[add]).until_done()
print(*(block.text for block in answer.content if block.type == "text"))
