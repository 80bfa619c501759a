"""Run a file of requests concurrently. Input and output have OpenAI's batch format; results are in order of completion.

Needs: pip install openai tqdm
Usage: python examples/batch.py REQUESTS.jsonl RESULTS.jsonl [URL of a running server]

Request: {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {"messages": […]}}
Result:  {"id": "batch_req_a", "custom_id": "a", "error": null,
            "response": {"status_code": 200, "request_id": "req_…", "body": {…}}}
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any, TextIO

import httpx2  # comes with OpenAI's SDK
from openai import APIConnectionError, APIStatusError, AsyncOpenAI
from tqdm import tqdm

AT_ONCE = 16  # twice the server's slots, so that a request is always waiting for a free slot


async def answer(client: AsyncOpenAI, request: dict[str, Any]) -> dict[str, Any]:
    """Return the result of one request. A failure is part of the result and does not stop other requests."""
    result: dict[str, Any] = {"id": f"batch_req_{request['custom_id']}", "custom_id": request["custom_id"]}
    try:
        # The client retries by itself if the server is full (429) or restarts its engine (503).
        response = await client.post(request["url"], body=request["body"], cast_to=httpx2.Response)
    except APIStatusError as refused:
        response = refused.response
    except APIConnectionError as lost:
        return {**result, "error": {"code": "connection_error", "message": str(lost)}, "response": None}
    answered = {
        "status_code": response.status_code,
        "request_id": response.headers["x-request-id"],
        "body": response.json(),
    }
    return {**result, "error": None, "response": answered}


async def answer_all(url: str, lines: list[str], results: TextIO, bar: "tqdm[Any]") -> None:
    """Answer all requests, at most `AT_ONCE` at a time, and write each result when it is complete."""
    requests = iter(lines)  # shared by all workers, so that each line is taken once

    async def work(client: AsyncOpenAI) -> None:
        for line in requests:
            results.write(json.dumps(await answer(client, json.loads(line))) + "\n")
            bar.update()

    async with AsyncOpenAI(base_url=url, api_key="not needed", max_retries=10) as client:
        await asyncio.gather(*(work(client) for _ in range(AT_ONCE)))


def main(source: str, target: str, url: str = "http://localhost:8000") -> None:
    with Path(source).open(encoding="utf-8") as requests:
        lines = list(requests)  # `str.splitlines` would also cut at U+2028, which JSON may have in its texts
    with Path(target).open("w", encoding="utf-8") as results, tqdm(total=len(lines), unit=" requests") as bar:
        asyncio.run(answer_all(url, lines, results, bar))


if not sys.argv[2:]:
    sys.exit(__doc__)
main(*sys.argv[1:])
