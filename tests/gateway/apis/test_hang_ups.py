"""A client that hangs up while the engine works for it: each API cancels the work, in every phase."""

import anyio
import orjson
import pytest

from tests.backends import on_each_backend  # noqa: F401 - a fixture
from tests.gateway.apis.requests import EMBEDDINGS, GENERATIONS, QUERIES, path_of
from tests.gateway.application import app_of
from tests.gateway.asgi import AsgiCall
from tests.gateway.chat import templates
from tests.gateway.fake_engine import FakeEngine, Script, say_a, say_nothing, wait_in_queue
from tests.repeat import every_case

pytestmark = [pytest.mark.anyio, every_case]

ASKED = {
    **EMBEDDINGS,
    **QUERIES,
    "/completion": {"prompt": "x"},
    "/v1/completions": {"prompt": "x", "return_token_ids": True},
}
"""Requests that the engine answers, or whose prompt it tokenises, before it generates."""


@pytest.mark.parametrize("script", [wait_in_queue, say_nothing, say_a])
@pytest.mark.parametrize("name", GENERATIONS)
async def test_a_hang_up_cancels_the_generation(name: str, script: Script) -> None:
    engine = FakeEngine(script, templates.CHATML)
    async with AsgiCall(app_of(engine), path_of(name), orjson.dumps(GENERATIONS[name])).running() as call:
        generation = await engine.first()
        if begun := GENERATIONS[name]["stream"] and script is say_a:
            await call.sent(1)
        call.hang_up()
    assert generation.left == "client closed the connection"
    assert (call.start is not None, call.complete) == (begun, False)


@pytest.mark.parametrize("path", ASKED)
async def test_a_hang_up_cancels_the_query(path: str) -> None:
    engine = FakeEngine(chat_template=templates.CHATML)
    engine.answers = anyio.Event()
    async with AsgiCall(app_of(engine), path, orjson.dumps(ASKED[path])).running() as call:
        with anyio.fail_after(20):
            await engine.asked.wait()
        call.hang_up()
    assert (call.start, engine.left, engine.generations) == (None, 1, [])
    assert {embedding.left for embedding in engine.embeddings} <= {"client closed the connection"}
