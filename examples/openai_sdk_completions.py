"""Use OpenAI's SDK for completions of a local server: whole, streamed, and cancelled.

Needs: pip install openai
Usage: python examples/openai_sdk_completions.py [URL of a running server]
"""

import sys
from itertools import islice

from openai import BadRequestError, OpenAI

url = sys.argv[1] if len(sys.argv) > 1 else "http://localhost:8000"
client = OpenAI(base_url=f"{url}/v1", api_key="not needed")
model = client.models.list().data[0].id

answer = client.completions.create(model=model, prompt="17+25=", max_tokens=32, temperature=0)
print(answer.choices[0].text)
print(answer.usage)

with client.completions.create(
    model=model, prompt="Once upon a time", max_tokens=64, stream=True, stream_options={"include_usage": True}
) as stream:
    for chunk in stream:
        print(chunk.choices[0].text if chunk.choices else f"\n{chunk.usage}", end="", flush=True)
print()

# Leaving the stream closes the connection: the engine drops the sequence before it computes the next token. With
# ignore_eos the answer would have 1,000 tokens, on every model.
with client.completions.create(
    model=model, prompt="Once upon a time", max_tokens=1000, stream=True, extra_body={"ignore_eos": True}
) as stream:
    for chunk in islice(stream, 20):
        print(chunk.choices[0].text, end="", flush=True)
print(" …")

try:
    client.completions.create(model=model, prompt="", max_tokens=1)
except BadRequestError as error:
    print(error.status_code, error.body)
