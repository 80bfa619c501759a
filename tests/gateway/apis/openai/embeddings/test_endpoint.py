"""`POST /v1/embeddings` without sockets: the engine's requests, and the answers."""

import base64
import struct

import pytest
from starlette.types import ASGIApp

from engine import EngineState, EngineStatus
from gateway.apis.openai.embeddings.request import MAX_INPUTS
from tests.gateway.application import app_of, gateway_of
from tests.gateway.asgi import get, post
from tests.gateway.fake_engine import MODEL, FakeEngine, vector_of
from tests.models import model_path

pytestmark = pytest.mark.anyio
PATH = "/v1/embeddings"


async def test_an_answer_has_openais_shape() -> None:
    engine = FakeEngine()
    reply = await post(app_of(engine), PATH, {"model": "tiny", "input": ["ab", "c"], "user": "u"})
    assert reply.status == 200
    assert reply.json == {
        "object": "list",
        "data": [
            {"object": "embedding", "index": 0, "embedding": list(vector_of(0))},
            {"object": "embedding", "index": 1, "embedding": pytest.approx(list(vector_of(1)))},
        ],
        "model": "tiny",
        "usage": {"prompt_tokens": 3, "total_tokens": 3},
    }
    (asked,) = engine.embeddings
    assert asked.request.inputs == ("ab", "c")
    assert asked.request.id == reply.header("x-request-id")
    assert asked.left is None


async def test_base64_and_fewer_dimensions_are_supported() -> None:
    body = {"input": [1, 2, 3], "encoding_format": "base64", "dimensions": 2}
    reply = await post(app_of(FakeEngine()), PATH, body)
    numbers = struct.unpack("<2f", base64.b64decode(reply.json["data"][0]["embedding"]))
    assert numbers == pytest.approx((0.5**0.5, 0.5**0.5))


async def test_more_dimensions_than_the_model_has_are_refused() -> None:
    engine = FakeEngine()
    assert (await post(app_of(FakeEngine()), PATH, {"input": "a", "dimensions": MODEL.embedding_size})).status == 200
    reply = await post(app_of(engine), PATH, {"input": "a", "dimensions": MODEL.embedding_size + 1})
    assert (reply.status, reply.json["error"]["param"], engine.embeddings) == (400, "dimensions", [])


@pytest.mark.parametrize("given", ["", [], [""], ["a"] * (MAX_INPUTS + 1), {"a": 1}])
async def test_wrong_inputs_never_reach_the_engine(given: object) -> None:
    engine = FakeEngine()
    reply = await post(app_of(engine), PATH, {"input": given})
    assert (reply.status, reply.json["error"]["param"], engine.embeddings) == (400, "input", [])


def app_of_two(main: FakeEngine, embedder: FakeEngine) -> ASGIApp:
    return gateway_of(main, embedder, embedding_model=model_path()).app


async def test_a_separate_embedding_model_embeds() -> None:
    main, embedder = FakeEngine(), FakeEngine()
    app = app_of_two(main, embedder)
    name = model_path().stem
    for asked in ({}, {"model": "default"}, {"model": name}):
        reply = await post(app, PATH, {"input": "a", **asked})
        assert (reply.status, reply.json["model"]) == (200, name)
    assert (len(main.embeddings), len(embedder.embeddings)) == (0, 3)
    assert (await post(app, PATH, {"input": "a", "model": "tiny"})).json["model"] == "tiny"
    assert len(main.embeddings) == 1


async def test_both_models_are_listed_and_only_one_generates() -> None:
    app = app_of_two(FakeEngine(), FakeEngine())
    name = model_path().stem
    assert [model["id"] for model in (await get(app, "/v1/models")).json["data"]] == ["tiny", name]
    assert (await get(app, f"/v1/models/{name}")).json["id"] == name
    refused = await post(app, "/v1/completions", {"model": name, "prompt": "a"})
    assert (refused.status, refused.json["error"]["code"]) == (400, "unsupported_model")
    unknown = await post(app, PATH, {"model": "other", "input": "a"})
    assert (unknown.status, unknown.json["error"]["code"]) == (404, "model_not_found")


async def test_health_covers_the_embedding_model() -> None:
    main, embedder = FakeEngine(), FakeEngine()
    app = app_of_two(main, embedder)
    assert (await get(app, "/health")).json == {"status": "ok", "restarts": 0}
    embedder.status = EngineStatus(EngineState.RESTARTING, "It died.", 0.0, 1)
    reply = await get(app, "/health")
    assert (reply.status, reply.json["detail"], reply.json["restarts"]) == (503, "It died.", 1)
