"""OpenAI's SDK against a local server: a conversation, by chat completions and by responses.

Needs: pip install openai
Usage: python examples/openai_sdk_chat.py [URL of a running server]
"""

import sys

from openai import OpenAI
from openai.types.chat import ChatCompletionMessageParam

url = sys.argv[1] if len(sys.argv) > 1 else "http://localhost:8000"
client = OpenAI(base_url=f"{url}/v1", api_key="none needed")
model = client.models.list().data[0].id

# A chat has no memory of its own: each request brings the whole conversation.
messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": "What is 17 plus 25?"}]
answer = client.chat.completions.create(model=model, messages=messages, temperature=0)
told = answer.choices[0].message
print(told.content)

messages += [{"role": "assistant", "content": told.content}, {"role": "user", "content": "Hello!"}]
with client.chat.completions.create(
    model=model, messages=messages, temperature=0, stream=True, stream_options={"include_usage": True}
) as stream:
    for chunk in stream:
        print(chunk.choices[0].delta.content or "" if chunk.choices else f"\n{chunk.usage}", end="", flush=True)
print()

# A response is kept by the server: the next one names it, and sends only what is new.
first = client.responses.create(model=model, input="Hello!", temperature=0)
second = client.responses.create(model=model, input="What is 17 plus 25?", previous_response_id=first.id, temperature=0)
print(first.output_text)
print(second.output_text)
client.responses.delete(first.id)
