"""The endpoints about the state of the server: models, health and slots."""

import pytest
from starlette.types import ASGIApp

from engine import EngineState, EngineStatus, Unavailable
from gateway.app import create_gateway
from tests.gateway.application import app_of, settings_for
from tests.gateway.asgi import get
from tests.gateway.fake_engine import FakeEngine

pytestmark = pytest.mark.anyio


def app_in_state(state: EngineState, progress: float = 0.0) -> ASGIApp:
    engine = FakeEngine()
    engine.status = EngineStatus(state, "So it is.", progress, 2)
    return app_of(engine)


async def test_models_are_listed() -> None:
    app = app_of(FakeEngine())
    listed, got = await get(app, "/v1/models"), await get(app, "/v1/models/tiny")
    model = got.json
    assert listed.json == {"object": "list", "data": [model]}
    assert isinstance(model.pop("created"), int)
    assert model == {
        "id": "tiny",
        "object": "model",
        "owned_by": "llama-gateway",
        "meta": {
            "description": "fake 1B F32",
            "n_vocab": 512,
            "n_ctx": 2048,
            "n_ctx_train": 4096,
            "n_embd": 4,
            "n_params": 10,
            "size": 40,
        },
    }


async def test_a_loading_model_is_found_without_metadata() -> None:
    engine = FakeEngine()
    engine.model = None
    model = (await get(app_of(engine), "/v1/models/tiny")).json
    assert model["id"] == "tiny"
    assert "meta" not in model


async def test_a_model_name_may_have_slashes() -> None:
    app = app_of(FakeEngine(), alias="org/tiny")
    assert (await get(app, "/v1/models/org/tiny")).json["id"] == "org/tiny"


async def test_an_unknown_model_is_not_found() -> None:
    reply = await get(app_of(FakeEngine()), "/v1/models/gpt-4")
    assert (reply.status, reply.json["error"]["code"]) == (404, "model_not_found")


async def test_health_is_ok_when_requests_are_welcome() -> None:
    reply = await get(app_in_state(EngineState.READY, 1.0), "/health")
    assert (reply.status, reply.json) == (200, {"status": "ok", "restarts": 2})


@pytest.mark.parametrize("state", [state for state in EngineState if state is not EngineState.READY])
async def test_health_has_the_reason_of_an_unavailable_engine(state: EngineState) -> None:
    reply = await get(app_in_state(state, 0.12345), "/health")
    expected = {"status": state.value, "detail": "So it is.", "restarts": 2, "progress": 0.123}
    assert (reply.status, reply.json) == (503, expected)


async def test_health_reports_a_draining_server() -> None:
    gateway = create_gateway(FakeEngine().as_engine(), settings_for())
    gateway.health.drain()
    reply = await get(gateway.app, "/health")
    expected = {"status": "draining", "detail": "The server is stopping.", "restarts": 0}
    assert (reply.status, reply.json) == (503, expected)


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
