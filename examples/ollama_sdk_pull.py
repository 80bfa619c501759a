"""Ollama's Python client: pull a model of the Hugging Face hub, ask it, delete it. The server needs `--allow-pull`.

Needs: pip install ollama
Usage: python examples/ollama_sdk_pull.py [URL of a running server] [MODEL]
"""

import sys

from ollama import Client, ResponseError

url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000"
model = sys.argv[2] if len(sys.argv) > 2 else "hf.co/ggml-org/gemma-3-1b-it-GGUF:Q4_K_M"  # noqa: PLR2004
with Client(url) as client:
    try:
        for progress in client.pull(model, stream=True):
            share = f" {progress.completed / progress.total:.0%}" if progress.completed and progress.total else ""
            print(f"{progress.status}{share}")
    except ResponseError as error:
        sys.exit(f"cannot pull {model}: {error.error}")
    question = [{"role": "user", "content": "What is 17+25?"}]
    print(client.chat(model, question, options={"temperature": 0}).message.content)
    client.delete(model)
