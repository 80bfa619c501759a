"""Use OpenAI's SDK for tool calls: a local server's model calls functions of this script and uses their results.

Needs: pip install openai
Usage: python examples/openai_sdk_tools.py [URL of a running server]
"""

import sys
from typing import Any

from openai import OpenAI, pydantic_function_tool
from pydantic import BaseModel

url = sys.argv[1] if len(sys.argv) > 1 else "http://localhost:8000"
client = OpenAI(base_url=f"{url}/v1", api_key="not needed")
model = client.models.list().data[0].id


# The model chooses a tool by its name, docstring and fields.
class Add(BaseModel):
    """Add two numbers."""

    a: int
    b: int

    def run(self) -> int:
        return self.a + self.b


class Weather(BaseModel):
    """Get the weather in a city."""

    city: str

    def run(self) -> str:
        return {"Paris": "light rain", "Rome": "sunny"}.get(self.city, "unknown")


tools = [pydantic_function_tool(Add, name="add"), pydantic_function_tool(Weather, name="get_weather")]

for question in ("What is 17 plus 25?", "What is the weather in Paris?"):
    print(question)
    messages: list[Any] = [{"role": "user", "content": question}]
    while True:
        answer = client.chat.completions.parse(model=model, messages=messages, tools=tools, temperature=0)
        message = answer.choices[0].message
        messages.append(message)
        if not message.tool_calls:
            break
        for call in message.tool_calls:
            result = call.function.parsed_arguments.run()
            print(f"  {call.function.name}({call.function.arguments}) returns {result}")
            messages.append({"role": "tool", "tool_call_id": call.id, "content": str(result)})
    print(f"  {message.content}")
