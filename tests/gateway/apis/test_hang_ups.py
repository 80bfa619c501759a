"""A client that hangs up while the engine works for it: each API cancels the work, in every phase."""

from typing import Any

import anyio
import orjson
import pytest

from tests.backends import on_each_backend  # noqa: F401 - a fixture
from tests.gateway.application import app_of
from tests.gateway.asgi import AsgiCall
from tests.gateway.chat import templates
from tests.gateway.fake_engine import FakeEngine, Script, say_a, say_nothing, wait_in_queue
from tests.repeat import every_case

pytestmark = [pytest.mark.anyio, every_case]

MESSAGES = [{"role": "user", "content": "Hi"}]
GENERATIONS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": MESSAGES},
    "/v1/completions": {"prompt": "x"},
    "/v1/responses": {"input": "Hi"},
    "/v1/messages": {"model": "tiny", "messages": MESSAGES, "max_tokens": 9},
    "/completion": {"prompt": "x"},
    "/generate": {"prompt": "x"},
    "/api/chat": {"model": "tiny", "messages": MESSAGES},
    "/api/generate": {"model": "tiny", "prompt": "x"},
}
QUERIES: dict[str, dict[str, Any]] = {
    "/tokenize": {"content": "a"},
    "/detokenize": {"tokens": [1]},
    "/v1/embeddings": {"input": "a"},
    "/v1/rerank": {"query": "q", "documents": ["a"]},
    "/v2/rerank": {"query": "q", "documents": ["a"]},
    "/completion": {"prompt": "a"},
    "/v1/completions": {"prompt": "a", "return_token_ids": True},
}
"""Requests that the engine answers, or whose prompt it counts, before it generates."""


@pytest.mark.parametrize("script", [wait_in_queue, say_nothing, say_a])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", GENERATIONS)
async def test_a_hang_up_cancels_the_generation(path: str, stream: bool, script: Script) -> None:
    engine = FakeEngine(script, templates.CHATML)
    call = AsgiCall(app_of(engine), path, orjson.dumps({**GENERATIONS[path], "stream": stream}))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call.run)
        generation = await engine.first()
        if begun := stream and script is say_a:
            await call.sent(1)
        call.hang_up()
    assert generation.left == "client closed the connection"
    assert (call.start is not None, call.complete) == (begun, False)


@pytest.mark.parametrize("path", QUERIES)
async def test_a_hang_up_cancels_the_query(path: str) -> None:
    engine = FakeEngine()
    engine.answers = anyio.Event()
    call = AsgiCall(app_of(engine), path, orjson.dumps(QUERIES[path]))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call.run)
        with anyio.fail_after(20):
            await engine.asked.wait()
        call.hang_up()
    assert (call.start, engine.left, engine.generations) == (None, 1, [])
    assert {embedding.left for embedding in engine.embeddings} <= {"client closed the connection"}
