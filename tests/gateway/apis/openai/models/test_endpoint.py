"""`GET /v1/models` and `/v1/models/{id}`."""

import pytest

from tests.gateway.application import app_of
from tests.gateway.asgi import get
from tests.gateway.fake_engine import FakeEngine

pytestmark = pytest.mark.anyio


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
        "status": {"value": "loaded"},
        "meta": {
            "description": "fake 1B F32",
            "n_vocab": 512,
            "n_ctx": 2048,
            "n_ctx_train": 4096,
            "n_embd": 4,
            "n_params": 10,
            "size": 40,
            "kv_cells": 4096,
            "kv_bytes": 1024,
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
