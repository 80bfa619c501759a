"""`/v1/chat/completions/control`: the reasoning of an answer is ended while it is streamed."""

from typing import Any

import anyio
import orjson
import pytest
from starlette.types import ASGIApp

from engine import Finished, FinishReason, Text
from gateway.keys.key import Key
from gateway.keys.ring import KeyRing
from gateway.keys.secret import hash_of
from tests.gateway.application import app_of, app_with_keys
from tests.gateway.asgi import AsgiCall, post
from tests.gateway.chat import templates
from tests.gateway.fake_engine import FakeEngine, FakeGeneration
from tests.gateway.keys.memory_store import MemoryKeyStore

pytestmark = pytest.mark.anyio

PATH = "/v1/chat/completions/control"
ENDED = {"success": True}
UNKNOWN = {"success": False, "message": "no active completion for this id"}
NOT_ENABLED = {"success": False, "message": "reasoning control not enabled for this completion"}


def think(generation: FakeGeneration) -> None:
    """Begin to reason, and go on until the test ends it."""
    generation.put(Text(0, "Hm"))


def thinking_engine(template: str = templates.THINKING) -> FakeEngine:
    return FakeEngine(think, template)


def chat(app: ASGIApp, key: str = "", **fields: Any) -> AsgiCall:
    body = {"messages": [{"role": "user", "content": "Hi"}], "stream": True, "reasoning_control": True, **fields}
    return AsgiCall(app, "/v1/chat/completions", orjson.dumps(body), headers=bearing(key))


def bearing(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"} if key else {}


async def end_reasoning(app: ASGIApp, answer_id: str, key: str = "") -> Any:
    call = await post(app, PATH, {"id": answer_id, "action": "reasoning_end"}, **bearing(key))
    assert call.status == 200, call.json
    return call.json


def id_of(call: AsgiCall) -> str:
    answer_id: str = orjson.loads(call.content.split(b"\n\n")[0].removeprefix(b"data: "))["id"]
    return answer_id


async def test_the_reasoning_of_a_stream_is_ended_by_its_id() -> None:
    engine = thinking_engine()
    app = app_of(engine)
    calls = [chat(app), chat(app)]
    async with anyio.create_task_group() as tasks:
        for call in calls:
            tasks.start_soon(call.run)
            await call.sent(1)
        assert await end_reasoning(app, id_of(calls[1])) == ENDED
        assert [one.reasoning_ended for one in engine.generations] == [False, True]
        reasoning = engine.generations[1].request.reasoning
        assert reasoning is not None
        assert (reasoning.budget, reasoning.opened, reasoning.controlled) == (None, True, True)
        for generation in engine.generations:
            generation.put(Finished(0, "</think>Yes", FinishReason.STOP, 3, 0))
    assert b'"content":"Yes"' in calls[1].content
    assert await end_reasoning(app, id_of(calls[1])) == UNKNOWN


async def test_an_answer_whose_client_is_gone_is_not_found() -> None:
    app = app_of(thinking_engine())
    call = chat(app)
    async with call.running():
        await call.sent(1)
        call.hang_up()
    assert await end_reasoning(app, id_of(call)) == UNKNOWN


@pytest.mark.parametrize(
    ("template", "fields"), [(templates.THINKING, {"reasoning_control": False}), (templates.CHATML, {})]
)
async def test_an_answer_without_control_is_not_changed(template: str, fields: dict[str, Any]) -> None:
    engine = thinking_engine(template)
    app = app_of(engine)
    call = chat(app, **fields)
    async with call.running():
        await call.sent(1)
        assert await end_reasoning(app, id_of(call)) == NOT_ENABLED
        assert not engine.generations[0].reasoning_ended
        call.hang_up()


async def test_a_caller_ends_only_its_own_reasoning() -> None:
    store = MemoryKeyStore()
    for name in ("a", "b"):
        await store.add(Key(id=f"key_{name}", name=name), hash_of(f"sk-{name}"))
    ring = KeyRing((), store)
    await ring.load()
    app = app_with_keys(ring, thinking_engine())
    call = chat(app, "sk-a")
    async with call.running():
        await call.sent(1)
        assert await end_reasoning(app, id_of(call), "sk-b") == UNKNOWN
        assert await end_reasoning(app, id_of(call), "sk-a") == ENDED
        call.hang_up()


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"action": "reasoning_end"}, "id"),
        ({"id": "", "action": "reasoning_end"}, "id"),
        ({"id": "x"}, "action"),
        ({"id": "x", "action": "stop"}, "action"),
    ],
)
async def test_a_wrong_body_is_refused(body: dict[str, str], param: str) -> None:
    call = await post(app_of(thinking_engine()), PATH, body)
    assert call.status == 400
    assert (call.json["error"]["type"], call.json["error"]["param"]) == ("invalid_request_error", param)
