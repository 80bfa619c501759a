"""`GET /slots` and `GET /slots/queue`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.types import ASGIApp

from engine import EngineMetrics, SlotInfo, Unavailable
from tests.gateway.application import app_of
from tests.gateway.asgi import AsgiCall, get
from tests.gateway.fake_engine import FakeEngine, say_nothing, wait_in_queue

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def running(request_id: str, *, waits: bool = False, **headers: str) -> AsyncIterator[ASGIApp]:
    """Run a request with this id and these headers inside the context, or let it wait."""
    engine = FakeEngine(wait_in_queue if waits else say_nothing)
    app = app_of(engine)
    call = AsgiCall(
        app, "/v1/completions", b'{"prompt":"x","priority":-3}', headers={"x-request-id": request_id, **headers}
    )
    async with call.running():
        await engine.first()
        yield app
        call.hang_up()


@pytest.mark.parametrize("path", ["/slots", "/slots/queue"])
async def test_another_model_is_not_found(path: str) -> None:
    app = app_of(FakeEngine())
    reply = await AsgiCall(app, path, method="GET", query="model=other").run()
    assert (reply.status, reply.json["error"]["reason"]) == (404, "model_not_found")
    assert (await AsgiCall(app, path, method="GET", query="model=tiny").run()).status == 200


async def slots_of(app: ASGIApp, path: str = "/slots", **headers: str) -> list[dict[str, Any]]:
    slots: list[dict[str, Any]] = (await AsgiCall(app, path, method="GET", headers=headers).run()).json
    return slots


async def test_slots_are_listed() -> None:
    async with running("req_a") as app:
        reply = await get(app, "/slots")
    assert reply.status == 200
    assert reply.json == [
        {
            "id": 0,
            "n_ctx": 2048,
            "is_processing": True,
            "state": "decode",
            "request_id": "req_a",
            "active_tokens": 7,
            "cached_tokens": 0,
        },
        {
            "id": 1,
            "n_ctx": 2048,
            "is_processing": False,
            "state": "idle",
            "request_id": None,
            "active_tokens": 0,
            "cached_tokens": 3,
        },
    ]


@pytest.mark.parametrize(("query", "busy", "status"), [("=1", 2, 503), ("=1", 1, 200), ("=", 2, 200), ("=0", 2, 503)])
async def test_slots_are_unavailable_if_asked_for_while_none_is_idle(
    monkeypatch: pytest.MonkeyPatch, query: str, busy: int, status: int
) -> None:
    engine = FakeEngine()
    slots = tuple(SlotInfo(id_, "decode", "req", 1, 0) for id_ in range(busy))
    idle = tuple(SlotInfo(id_, "idle", None, 0, 0) for id_ in range(busy, 2))

    async def inspect() -> tuple[tuple[SlotInfo, ...], EngineMetrics]:
        return slots + idle, EngineMetrics()

    monkeypatch.setattr(engine, "inspect", inspect)
    reply = await AsgiCall(app_of(engine), "/slots", method="GET", query=f"fail_on_no_slot{query}").run()
    assert reply.status == status
    assert len(reply.json) == 2 or reply.json["error"]["message"] == "no slot available"


@pytest.mark.parametrize("path", ["/slots", "/slots/queue"])
async def test_slots_without_an_engine_are_unavailable(path: str) -> None:
    engine = FakeEngine()
    engine.refusal = Unavailable("The model is loading.", code="engine_unavailable")
    reply = await get(app_of(engine), path)
    assert (reply.status, reply.json["error"]["reason"]) == (503, "engine_unavailable")


async def test_the_ids_of_requests_with_other_credentials_are_hidden() -> None:
    async with running("req_a", authorization="Bearer alice") as app:
        (theirs, _), (own, _) = await slots_of(app), await slots_of(app, authorization="Bearer alice")
        assert (theirs["request_id"], own["request_id"]) == (None, "req_a")
        assert {**theirs, "request_id": "req_a"} == own
        (others, _) = await slots_of(app, authorization="Bearer mallory")
        assert others == theirs


async def test_the_id_of_an_ended_request_is_not_remembered() -> None:
    async with running("req_a") as app:
        assert (await slots_of(app))[0]["request_id"] == "req_a"
    assert (await slots_of(app))[0]["request_id"] is None


async def test_the_queue_is_listed_with_the_ids_of_own_requests_only() -> None:
    async with running("req_a", waits=True, authorization="Bearer alice") as app:
        own = await slots_of(app, "/slots/queue", authorization="Bearer alice")
        assert own == [{"position": 1, "request_id": "req_a", "prompt_tokens": 1, "priority": -3, "seconds": 1.5}]
        others = await slots_of(app, "/slots/queue", authorization="Bearer mallory")
        assert others == [{**own[0], "request_id": None}]


async def test_a_request_with_a_slot_is_not_in_the_queue() -> None:
    async with running("req_a") as app:
        assert await slots_of(app, "/slots/queue") == []
