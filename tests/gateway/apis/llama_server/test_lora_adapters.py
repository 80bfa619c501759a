"""LoRA adapters: as models, by the field `lora`, and the scales of `/lora-adapters`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest
from starlette.types import ASGIApp

from gateway.keys.key import Key
from gateway.keys.ring import KeyRing
from gateway.keys.secret import hash_of
from tests.gateway.application import app_of, app_with_keys
from tests.gateway.asgi import AsgiCall
from tests.gateway.fake_engine import FakeEngine
from tests.gateway.keys.memory_store import MemoryKeyStore

pytestmark = pytest.mark.anyio

HERE = Path(__file__)
LORA = (f"fr={HERE}:0.5", f"{HERE}")
NAMES = ["tiny", "tiny:fr", f"tiny:{HERE.stem}"]


def headers_of(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"} if key else {}


async def ask(app: ASGIApp, path: str = "/v1/completions", key: str = "", **body: Any) -> AsgiCall:
    return await AsgiCall(app, path, orjson.dumps({"prompt": "x", **body}), headers=headers_of(key)).run()


async def adapters_for(engine: FakeEngine, app: ASGIApp, **body: Any) -> object:
    """Return the adapters of the request that the engine got, without those with a scale of 0."""
    call = await ask(app, **body)
    assert call.status == 200, call.json
    return tuple(one for one in engine.generations[-1].request.adapters or () if one[1])


async def get(app: ASGIApp, path: str, query: str = "", key: str = "") -> Any:
    return (await AsgiCall(app, path, method="GET", query=query, headers=headers_of(key)).run()).json


async def app_for_keys(models: Mapping[str, frozenset[str] | None]) -> ASGIApp:
    """Return an application whose keys `sk-NAME` may use some models."""
    store = MemoryKeyStore()
    for name, allowed in models.items():
        await store.add(Key(id=f"key_{name}", name=name, models=allowed), hash_of(f"sk-{name}"))
    ring = KeyRing((), store)
    await ring.load()
    return app_with_keys(ring, FakeEngine(), lora=LORA)


async def set_scales(app: ASGIApp, scales: object, key: str = "") -> AsgiCall:
    return await AsgiCall(app, "/lora-adapters", orjson.dumps(scales), headers=headers_of(key)).run()


async def test_adapters_are_models_with_a_parent() -> None:
    app = app_of(FakeEngine(), lora=LORA)
    listed = await get(app, "/v1/models")
    models = listed["data"]
    assert (listed["first_id"], listed["last_id"]) == (NAMES[0], NAMES[-1])
    assert [model["id"] for model in models] == NAMES
    assert [model.get("parent") for model in models] == [None, "tiny", "tiny"]
    one = await get(app, "/v1/models/tiny:fr")
    assert (one["id"], one["parent"], one["root"]) == ("tiny:fr", "tiny", "tiny")
    assert [model["id"] for model in (await get(app_of(FakeEngine()), "/v1/models"))["data"]] == ["tiny"]


@pytest.mark.parametrize(
    ("name", "adapters"), [("tiny", ()), ("default", ()), ("tiny:fr", ((0, 0.5),)), (NAMES[2], ((1, 1.0),))]
)
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/v1/responses"])
async def test_the_name_of_the_model_chooses_an_adapter(path: str, name: str, adapters: object) -> None:
    engine = FakeEngine()
    app = app_of(engine, lora=LORA, chat_template="{{ messages[0].content }}")
    prompt = {"messages": [{"role": "user", "content": "x"}]} if "chat" in path else {"input": "x"}
    body = {"model": name, **({"prompt": "x"} if path == "/v1/completions" else prompt)}
    call = await AsgiCall(app, path, orjson.dumps(body)).run()
    assert call.status == 200, call.json
    assert call.json["model"] == ("tiny" if name == "default" else name)
    assert (engine.generations[0].request.adapters or ()) == adapters


async def test_the_field_chooses_adapters_by_their_ids() -> None:
    engine = FakeEngine()
    app = app_of(engine, lora=LORA)
    both = [{"id": 1, "scale": 2}, {"id": 0, "scale": -0.5}]
    assert await adapters_for(engine, app, lora=both) == ((1, 2.0), (0, -0.5))
    assert await adapters_for(engine, app, lora=[]) == ()
    assert await adapters_for(engine, app, lora=None) == ()


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"lora": [{"id": 0, "scale": 1}], "model": "tiny:fr"}, "lora"),
        ({"lora": [], "model": "tiny:fr"}, "lora"),
        ({"lora": [{"id": 0, "scale": 1}, {"id": 0, "scale": 2}]}, "lora"),
        ({"lora": [{"id": -1, "scale": 1}]}, "lora[0].id"),
        ({"lora": [{"id": 0}]}, "lora[0].scale"),
        ({"lora": [{"id": 0, "scale": 101}]}, "lora[0].scale"),
        ({"lora": {"id": 0, "scale": 1}}, "lora"),
    ],
)
async def test_a_wrong_choice_is_a_400(body: dict[str, Any], param: str) -> None:
    call = await ask(app_of(FakeEngine(), lora=LORA), **body)
    assert (call.status, call.json["error"]["param"]) == (400, param)


async def test_an_unknown_adapter_is_a_404_with_the_known_names() -> None:
    call = await ask(app_of(FakeEngine(), lora=LORA), model="tiny:es")
    assert call.status == 404
    assert "'tiny:fr'" in call.json["error"]["message"]


@pytest.mark.parametrize(
    ("path", "body", "reason"),
    [
        ("/v1/embeddings", {"input": "x"}, "computes no embeddings"),
        ("/v1/rerank", {"query": "x", "documents": ["y"]}, "does not rank documents"),
    ],
)
async def test_an_adapter_is_for_generation_alone(path: str, body: dict[str, Any], reason: str) -> None:
    engine = FakeEngine()
    call = await ask(app_of(engine, lora=LORA), path, model="tiny:fr", **body)
    assert (call.status, call.json["error"]["code"]) == (400, "unsupported_model")
    assert reason in call.json["error"]["message"]
    assert not engine.embeddings


async def test_the_scales_of_requests_that_choose_none_can_be_changed() -> None:
    engine = FakeEngine()
    app = app_of(engine, lora=LORA)
    listed = await get(app, "/lora-adapters")
    assert [(one["id"], one["path"], one["scale"], one["model"]) for one in listed] == [
        (0, HERE.name, 0.0, "tiny:fr"),
        (1, HERE.name, 0.0, NAMES[2]),
    ]
    assert (await set_scales(app, [{"id": 1, "scale": 0.25}])).json == {"success": True}
    assert [one["scale"] for one in await get(app, "/lora-adapters", "model=tiny")] == [0.0, 0.25]
    assert await adapters_for(engine, app) == ((1, 0.25),)
    assert await adapters_for(engine, app, model="tiny:fr") == ((0, 0.5),)
    assert await adapters_for(engine, app, lora=[{"id": 0, "scale": 1}]) == ((0, 1.0),)
    assert (await set_scales(app, [])).status == 200
    assert await adapters_for(engine, app) == ()


@pytest.mark.parametrize(
    "scales", [{"id": 0, "scale": 1}, [{"id": 2, "scale": 1}], [{"id": 0}], [{"id": 0, "scale": 1}] * 2, "x", [[[]]]]
)
async def test_wrong_scales_are_a_400_and_change_nothing(scales: object) -> None:
    app = app_of(FakeEngine(), lora=LORA)
    assert (await set_scales(app, [{"id": 0, "scale": 1}])).status == 200
    assert (await set_scales(app, scales)).status == 400
    assert [one["scale"] for one in await get(app, "/lora-adapters")] == [1.0, 0.0]


async def test_an_error_names_the_scale_at_fault_by_its_place() -> None:
    call = await set_scales(app_of(FakeEngine(), lora=LORA), [{"id": 0, "scale": 1}, {"id": "x", "scale": 1}])
    assert call.json["error"]["param"] == "[1].id"


async def test_a_model_without_adapters_has_an_empty_list() -> None:
    assert await get(app_of(FakeEngine()), "/lora-adapters") == []
    assert (await AsgiCall(app_of(FakeEngine()), "/lora-adapters", method="GET", query="model=x").run()).status == 404


async def test_a_key_may_use_the_adapters_whose_names_it_has() -> None:
    models = {"all": None, "base": frozenset({"tiny"}), "fr": frozenset({"tiny:fr"}), "both": frozenset(NAMES[:2])}
    app = await app_for_keys(models)

    async def status(key: str, **body: Any) -> int:
        return (await ask(app, key=f"sk-{key}", **body)).status

    assert [await status(key, model="tiny:fr") for key in models] == [200, 403, 200, 200]
    assert [await status(key, model="tiny") for key in models] == [200, 200, 403, 200]
    by_id = [{"id": 0, "scale": 1}]
    assert [await status(key, model="tiny", lora=by_id) for key in models] == [200, 403, 403, 200]
    assert await status("both", model="tiny", lora=[{"id": 1, "scale": 1}]) == 403
    assert await status("both", model="tiny", lora=[{"id": 1, "scale": 0}]) == 200
    assert [(await set_scales(app, by_id, f"sk-{key}")).status for key in models] == [200, 403, 403, 403]


async def test_a_key_does_not_see_the_names_of_other_adapters() -> None:
    app = await app_for_keys({"all": None, "both": frozenset(NAMES[:2])})
    assert [one["model"] for one in await get(app, "/lora-adapters", key="sk-all")] == NAMES[1:]
    assert [one["model"] for one in await get(app, "/lora-adapters", key="sk-both")] == NAMES[1:2]
    refused = await ask(app, key="sk-both", model="tiny", lora=[{"id": 1, "scale": 1}])
    assert refused.json["error"]["message"] == "This API key may not use the LoRA adapter 1."
