"""`POST /embedding` without a model, in llama-server's shape."""

import pytest

from tests.gateway import fake_engine
from tests.gateway.application import app_of
from tests.gateway.asgi import post
from tests.gateway.fake_engine import BOS, FakeEngine, vector_of

pytestmark = pytest.mark.anyio

VECTORS = [
    {"index": 0, "embedding": [pytest.approx(list(vector_of(0)))]},
    {"index": 1, "embedding": [pytest.approx(list(vector_of(1)))]},
]


@pytest.mark.parametrize("path", ["/embedding", "/embeddings"])
@pytest.mark.parametrize("field", ["input", "content"])
async def test_each_input_has_its_vectors(path: str, field: str) -> None:
    engine = FakeEngine()
    reply = await post(app_of(engine), path, {field: ["a", [98, 99]]})
    assert reply.json == VECTORS
    assert engine.embeddings[0].request.inputs == ("a", (98, 99))


async def test_an_input_of_texts_and_token_ids_is_one() -> None:
    engine = FakeEngine()
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    await post(app_of(engine), "/embedding", {"input": [["a", 98], {"content": parts}, {"prompt_string": "c"}]})
    assert engine.embeddings[0].request.inputs == ((BOS, 97, 98), "ab", "c")


@pytest.mark.parametrize("field", ["input", "content"])
async def test_unknown_fields_of_objects_are_reported(field: str) -> None:
    texts = [{"prompt_string": "a", "content": []}, {"content": [{"type": "text", "text": "b", "x": 1}]}]
    reply = await post(app_of(FakeEngine()), "/embedding", {field: texts})
    assert reply.header("x-llama-gateway-ignored") == f"{field}.content, {field}.content.x"


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"input": []},
        {"input": "a", "content": "b"},
        {"input": {"content": "a"}},
        {"input": {"content": [{"type": "image_url", "image_url": {"url": "x"}}]}},
        {"input": "a", "embd_normalize": -1},
    ],
)
async def test_an_invalid_input_is_refused(body: object) -> None:
    engine = FakeEngine()
    reply = await post(app_of(engine), "/embedding", body)
    assert (reply.status, reply.json["error"]["code"], engine.embeddings) == (400, 400, [])


@pytest.mark.parametrize("field", ["input", "content"])
async def test_a_token_that_the_model_has_not_names_the_field(field: str) -> None:
    reply = await post(app_of(FakeEngine()), "/embedding", {field: [["a", 999]]})
    assert (reply.status, reply.json["error"]["param"]) == (400, field)


async def test_the_versioned_route_takes_the_same_inputs_where_the_answers_are_llama_servers() -> None:
    app = app_of(FakeEngine(), answers_like="llama-server")
    versioned = await post(app, "/v1/embeddings", {"input": ["a", 98], "model": "any"})
    assert versioned.json["data"][0]["embedding"] == pytest.approx(list(vector_of(0)))


@pytest.mark.parametrize(("norm", "expected"), [(0, [32760, 0, 0, -32760]), (1, [0.5, 0, 0, -0.5])])
async def test_vectors_are_scaled_by_the_norm(
    norm: int, expected: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fake_engine, "vector_of", lambda _index: (1.0, 0.0, 0.0, -1.0))
    reply = await post(app_of(FakeEngine()), "/embedding", {"input": "a", "embd_normalize": norm})
    assert reply.json[0]["embedding"] == [expected]
