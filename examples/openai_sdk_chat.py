"""Use OpenAI's SDK for a conversation with a local server, by chat completions, responses and conversations.

Needs: pip install openai
Usage: python examples/openai_sdk_chat.py [URL of a running server]
"""

import sys

from openai import OpenAI
from openai.types.chat import ChatCompletionMessageParam

url = sys.argv[1] if len(sys.argv) > 1 else "http://localhost:8000"
client = OpenAI(base_url=f"{url}/v1", api_key="not needed")
model = client.models.list().data[0].id

# Chat completions are stateless: each request contains the whole conversation.
messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": "What is 17 plus 25?"}]
answer = client.chat.completions.create(model=model, messages=messages, temperature=0)
reply = answer.choices[0].message
print(reply.content)

messages += [{"role": "assistant", "content": reply.content}, {"role": "user", "content": "Hello!"}]
with client.chat.completions.create(
    model=model, messages=messages, temperature=0, stream=True, stream_options={"include_usage": True}
) as stream:
    for chunk in stream:
        print(chunk.choices[0].delta.content or "" if chunk.choices else f"\n{chunk.usage}", end="", flush=True)
print()

# The server stores responses: the next request refers to the last response and contains only the new input.
first = client.responses.create(model=model, input="Hello!", temperature=0)
second = client.responses.create(model=model, input="What is 17 plus 25?", previous_response_id=first.id, temperature=0)
print(first.output_text)
print(second.output_text)
client.responses.delete(first.id)

# The server keeps a conversation: each response reads its items, and adds its own.
conversation = client.conversations.create(items=[{"role": "user", "content": "Hello!"}])
client.responses.create(model=model, conversation=conversation.id, temperature=0)
third = client.responses.create(model=model, input="What is 17 plus 25?", conversation=conversation.id, temperature=0)
print(third.output_text)
for item in client.conversations.items.list(conversation.id, order="asc"):
    if item.type == "message":
        print(f"{item.role}: {item.content[0].text}")
client.conversations.delete(conversation.id)
