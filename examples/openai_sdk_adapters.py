"""Ask a model and each of its LoRA adapters the same with OpenAI's SDK. Start the server with --lora NAME=FILE.gguf.

Needs: pip install openai
Usage: python examples/openai_sdk_adapters.py [URL of a running server]
"""

import sys

from openai import BadRequestError, OpenAI

url = sys.argv[1] if len(sys.argv) > 1 else "http://localhost:8000"
client = OpenAI(base_url=f"{url}/v1", api_key="not needed")

for model in client.models.list():
    try:
        answer = client.completions.create(model=model.id, prompt="17+25=", max_tokens=32, temperature=0)
    except BadRequestError as error:
        if error.code != "unsupported_model":
            raise
        continue  # it computes embeddings, or ranks
    print(f"{model.id}: {answer.choices[0].text}")

# Adapters can also be chosen by their ids in /lora-adapters, several at once and with any scale. Without ids: none.
answer = client.completions.create(prompt="17+25=", model="default", max_tokens=32, extra_body={"lora": []})
print(f"no adapter: {answer.choices[0].text}")
