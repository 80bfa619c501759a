"""A file of requests, many at a time: OpenAI's batch format in, its results out, in the order in which they end.

Needs: pip install openai tqdm
Usage: python examples/batch.py REQUESTS.jsonl RESULTS.jsonl [URL of a running server]

A request: {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {"messages": […]}}
A result:  {"id": "batch_req_a", "custom_id": "a", "error": null,
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

AT_ONCE = 16  # the server's slots and as many again, so that a free slot finds a request waiting


async def answer(client: AsyncOpenAI, request: dict[str, Any]) -> dict[str, Any]:
    """The result of one request. What is wrong with it does not stop the others."""
    result: dict[str, Any] = {"id": f"batch_req_{request['custom_id']}", "custom_id": request["custom_id"]}
    try:
        # The client itself tries again where the server is full (429) or starts a new engine (503).
        response = await client.post(request["url"], body=request["body"], cast_to=httpx2.Response)
    except APIStatusError as refused:
        response = refused.response
    except APIConnectionError as lost:
        return {**result, "error": {"code": "connection_error", "message": str(lost)}, "response": None}
    told = {
        "status_code": response.status_code,
        "request_id": response.headers["x-request-id"],
        "body": response.json(),
    }
    return {**result, "error": None, "response": told}


async def answer_all(url: str, lines: list[str], results: TextIO, bar: "tqdm[Any]") -> None:
    """Answer `AT_ONCE` requests at a time."""
    requests = iter(lines)  # one for all workers: each line is taken once

    async def work(client: AsyncOpenAI) -> None:
        for line in requests:
            results.write(json.dumps(await answer(client, json.loads(line))) + "\n")
            bar.update()

    async with AsyncOpenAI(base_url=url, api_key="none needed", max_retries=10) as client:
        await asyncio.gather(*(work(client) for _ in range(AT_ONCE)))


def main(source: str, target: str, url: str = "http://localhost:8000") -> None:
    lines = Path(source).read_text(encoding="utf-8").splitlines()
    with Path(target).open("w", encoding="utf-8") as results, tqdm(total=len(lines), unit=" requests") as bar:
        asyncio.run(answer_all(url, lines, results, bar))


main(*sys.argv[1:])
