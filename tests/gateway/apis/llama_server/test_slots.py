"""`GET /slots`."""

import pytest

from engine import Unavailable
from tests.gateway.application import app_of
from tests.gateway.asgi import get
from tests.gateway.fake_engine import FakeEngine

pytestmark = pytest.mark.anyio


async def test_slots_are_listed() -> None:
    reply = await get(app_of(FakeEngine()), "/slots")
    assert reply.status == 200
    assert reply.json == [
        {
            "id": 0,
            "is_processing": True,
            "state": "decode",
            "request_id": "req_a",
            "active_tokens": 7,
            "cached_tokens": 0,
        },
        {
            "id": 1,
            "is_processing": False,
            "state": "idle",
            "request_id": None,
            "active_tokens": 0,
            "cached_tokens": 3,
        },
    ]


async def test_slots_without_an_engine_are_unavailable() -> None:
    engine = FakeEngine()
    engine.refusal = Unavailable("The model is loading.", code="engine_unavailable")
    reply = await get(app_of(engine), "/slots")
    assert (reply.status, reply.json["error"]["code"]) == (503, "engine_unavailable")
