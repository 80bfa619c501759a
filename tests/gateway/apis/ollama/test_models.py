"""Ollama's lists and descriptions of models, and its embeddings, without a model."""

from dataclasses import replace

import pytest

from gateway.apis.ollama.description import running
from gateway.middleware.streams.blocks import BLOCK
from gateway.serving.sources import OpenEngine
from tests.gateway.application import app_of, gateway_of
from tests.gateway.asgi import AsgiCall, get, post
from tests.gateway.fake_engine import MODEL, FakeEngine, vector_of
from tests.models import model_path

pytestmark = pytest.mark.anyio


async def test_models_are_listed_with_a_tag() -> None:
    app = app_of(FakeEngine(), model=model_path())
    [model] = (await get(app, "/api/tags")).json["models"]
    assert (model["name"], model["model"]) == ("tiny:latest", "tiny:latest")
    assert model["size"] == model_path().stat().st_size
    assert len(model["digest"]) == 64
    assert model["details"] == {
        "parent_model": "",
        "format": "gguf",
        "family": "",
        "families": [],
        "parameter_size": "10",
        "quantization_level": "F32",
    }


@pytest.mark.parametrize(
    ("words", "level"),
    [
        ("F16", "F16"),
        ("all F32", "F32"),
        ("Q4_K - Medium", "Q4_K_M"),
        ("Q3_K - Large", "Q3_K_L"),
        ("Q2_K - Medium", "Q2_K"),
        ("(guessed) Q8_0", "Q8_0"),
        ("IQ4_XS - 4.25 bpw", "IQ4_XS"),
        ("IQ3_S mix - 3.66 bpw", "IQ3_M"),
        ("MXFP4 MoE", "MXFP4"),
    ],
)
async def test_the_quantization_has_the_name_that_files_have(words: str, level: str) -> None:
    engine = FakeEngine()
    engine.model = replace(MODEL, description=f"llama4 17Bx16E (Scout) {words}", file_type=words)
    [model] = (await get(app_of(engine), "/api/tags")).json["models"]
    assert model["details"]["quantization_level"] == level


async def test_a_model_is_described_by_its_file_and_its_template() -> None:
    engine = FakeEngine()
    engine.model = replace(MODEL, chat_template="{{ enable_thinking }}", infills=True)
    app = app_of(engine, model=model_path())
    for body in (
        {"model": "tiny"},
        {"name": "tiny:latest"},
        {"model": "tiny", "name": ""},
        {"model": "", "name": "tiny"},
    ):
        shown = (await post(app, "/api/show", body)).json
        assert shown["capabilities"] == ["completion", "tools", "insert", "thinking"]
        assert shown["template"] == "{{ enable_thinking }}"
        assert shown["model_info"]["general.architecture"] == "llama"
        assert shown["model_info"]["llama.context_length"] > 0
    engine.model = replace(MODEL, generates=False)
    assert (await post(app, "/api/show", {"model": "tiny"})).json["capabilities"] == ["embedding"]
    missing = await post(app, "/api/show", {"model": "other"})
    assert (missing.status, missing.json.keys()) == (404, {"error"})


async def test_only_loaded_models_run() -> None:
    engine = FakeEngine()
    engine.model = replace(MODEL, host_memory=90, host_buffers=5, gpu_memory=2)
    app = app_of(engine)
    [model] = (await get(app, "/api/ps")).json["models"]
    assert (model["size"], model["size_vram"], model["context_length"]) == (7, 2, MODEL.context)
    engine.model = None
    assert (await get(app, "/api/ps")).json == {"models": []}


class _Idle(OpenEngine):
    idle_left = 60.0  # type: ignore[assignment]


async def test_a_model_on_demand_expires() -> None:
    gateway = gateway_of(FakeEngine())
    [model] = gateway.models.all
    never = running(model, MODEL)["expires_at"]
    model.source = _Idle(FakeEngine().as_engine())
    assert running(model, MODEL)["expires_at"] < never


async def test_clients_find_the_server_and_its_version() -> None:
    app = app_of(FakeEngine())
    head = await AsgiCall(app, "/", b"", "HEAD").run()
    assert head.status == 200
    assert (await AsgiCall(app, "/", b"", "GET").run()).content == b"Ollama is running"
    version = (await get(app, "/api/version")).json["version"]
    assert [int(part) for part in version.split(".")] >= [0, 13, 4], "Codex refuses older ones"


async def test_embeddings_are_cut_unless_the_request_forbids_it() -> None:
    engine = FakeEngine()
    app = app_of(engine)
    reply = await post(app, "/api/embed", {"model": "tiny", "input": ["a", "bc"]})
    assert reply.json["embeddings"] == [pytest.approx(vector_of(0)), pytest.approx(vector_of(1))]
    assert (reply.json["model"], reply.json["prompt_eval_count"]) == ("tiny", 3)
    await post(app, "/api/embed", {"model": "tiny", "input": "a", "truncate": False})
    assert [asked.request.truncation for asked in engine.embeddings] == [-1, None]


async def test_an_empty_text_in_an_array_is_embedded_so_that_each_embedding_keeps_its_place() -> None:
    engine = FakeEngine()
    reply = await post(app_of(engine), "/api/embed", {"model": "tiny", "input": ["a", "", "bc"]})
    assert len(reply.json["embeddings"]) == 3
    assert engine.embeddings[0].request.inputs == ("a", "", "bc")
    assert (await post(app_of(engine), "/api/embed", {"model": "tiny", "input": ""})).json["embeddings"] == []


async def test_many_embeddings_are_sent_in_blocks() -> None:
    reply = await post(app_of(FakeEngine()), "/api/embed", {"model": "tiny", "input": ["a"] * 2048, "dimensions": 3})
    assert len(reply.json["embeddings"]) == 2048
    assert max(map(len, reply.bodies)) <= 2 * BLOCK
    assert len(reply.bodies) > 1


async def test_embeddings_can_be_shortened_but_not_lengthened() -> None:
    app = app_of(FakeEngine())
    [vector] = (await post(app, "/api/embed", {"model": "tiny", "input": "a", "dimensions": 2})).json["embeddings"]
    assert vector == pytest.approx([0.5**0.5, 0.5**0.5])
    refused = await post(app, "/api/embed", {"model": "tiny", "input": "a", "dimensions": 9})
    assert (refused.status, "dimensions" in refused.json["error"]) == (400, True)


async def test_the_older_route_has_one_embedding_or_none() -> None:
    engine = FakeEngine()
    app = app_of(engine)
    reply = await post(app, "/api/embeddings", {"model": "tiny", "prompt": "a"})
    assert reply.json == {"embedding": pytest.approx(vector_of(0))}
    assert (await post(app, "/api/embeddings", {"model": "tiny", "prompt": ""})).json == {"embedding": []}
    assert (await post(app, "/api/embed", {"model": "tiny", "input": []})).json["embeddings"] == []
    assert len(engine.embeddings) == 1
