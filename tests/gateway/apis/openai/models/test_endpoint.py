"""`GET /v1/models` and `/v1/models/{id}`."""

from datetime import datetime

import pytest

from gateway.apis.openai.models.answer import model_list
from tests.gateway.application import app_of
from tests.gateway.asgi import get
from tests.gateway.fake_engine import FakeEngine

pytestmark = pytest.mark.anyio


async def test_models_are_listed() -> None:
    app = app_of(FakeEngine())
    listed, got = await get(app, "/v1/models"), await get(app, "/v1/models/tiny")
    model = got.json
    page = {"has_more": False, "first_id": "tiny", "last_id": "tiny"}
    assert listed.json == {"object": "list", "data": [model], **page}
    assert datetime.fromisoformat(model.pop("created_at")).timestamp() == model.pop("created")
    assert model == {
        "id": "tiny",
        "object": "model",
        "type": "model",
        "display_name": "tiny",
        "lifecycle": "active",
        "owned_by": "llama-gateway",
        "status": {"value": "loaded"},
        "root": "tiny",
        "max_model_len": 2048,
        "max_input_tokens": 2048,
        "meta": {
            "description": "fake 1B F32",
            "n_vocab": 512,
            "n_ctx": 2048,
            "n_ctx_train": 4096,
            "n_embd": 4,
            "n_params": 10,
            "size": 40,
            "ftype": "F32",
            "kv_cells": 4096,
            "kv_bytes": 1024,
        },
    }


def test_a_key_without_a_model_gets_an_empty_page() -> None:
    page = model_list([])
    assert (page["data"], page["first_id"], page["last_id"]) == ([], None, None)


async def test_a_loading_model_is_found_without_metadata() -> None:
    engine = FakeEngine()
    engine.model = None
    model = (await get(app_of(engine), "/v1/models/tiny")).json
    assert model["id"] == "tiny"
    assert not {"meta", "max_model_len", "max_input_tokens"} & model.keys()


async def test_a_model_name_may_have_slashes() -> None:
    app = app_of(FakeEngine(), alias="org/tiny")
    assert (await get(app, "/v1/models/org/tiny")).json["id"] == "org/tiny"


async def test_an_unknown_model_is_not_found() -> None:
    reply = await get(app_of(FakeEngine()), "/v1/models/gpt-4")
    assert (reply.status, reply.json["error"]["code"]) == (404, "model_not_found")
