"""Models on demand, as clients and operators see them."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from prometheus_client.parser import text_string_to_metric_families

from engine import EngineMetrics
from tests.gateway.application import app_of
from tests.gateway.asgi import AsgiCall, get, post
from tests.gateway.fake_engine import FakeEngine
from tests.gateway.on_demand import OnDemand, on_demand

pytestmark = pytest.mark.anyio

COMPLETIONS = "/v1/completions"


def ask(model: str | None = None) -> dict[str, Any]:
    return {"prompt": "x"} if model is None else {"prompt": "x", "model": model}


async def states(gateway: OnDemand, path: str = "/v1/models") -> dict[str, Any]:
    return {model["id"]: model["status"] for model in (await get(gateway.app, path)).json["data"]}


async def test_a_request_loads_its_model_and_the_first_is_the_default() -> None:
    async with on_demand() as gateway:
        for name in (None, "b"):
            assert (await post(gateway.app, COMPLETIONS, ask(name))).json["model"] == (name or "a")
        assert gateway.opener.opened == ["a", "b"]


async def test_each_load_of_a_model_without_a_template_is_one_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async with on_demand() as gateway:
        gateway.opener.chat_template = None
        for name in "aabca":
            await post(gateway.app, COMPLETIONS, ask(name))
    lines = [record.getMessage() for record in caplog.records if record.name == "gateway.serving.prompts"]
    text = "the model {} has no chat template, so that chats are refused: --chat-template FILE"
    assert lines == [text.format(name) for name in "abca"]


async def test_a_third_model_takes_the_room_of_the_least_recently_used() -> None:
    async with on_demand() as gateway:
        for name in "abac":
            assert (await post(gateway.app, COMPLETIONS, ask(name))).status == 200
        assert await states(gateway) == {"a": {"value": "loaded"}, "b": {"value": "unloaded"}, "c": {"value": "loaded"}}


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/a", "/models", "/health", "/readyz", "/metrics", "/slots"])
async def test_a_look_at_the_server_loads_no_model(path: str) -> None:
    async with on_demand() as gateway:
        reply = await get(gateway.app, path)
        await anyio.wait_all_tasks_blocked()
        assert (gateway.opener.opened, reply.status) == ([], 503 if path == "/slots" else 200)


async def test_the_slots_are_those_of_the_named_model() -> None:
    async with on_demand() as gateway:
        await post(gateway.app, COMPLETIONS, ask("b"))
        assert len((await AsgiCall(gateway.app, "/slots", method="GET", query="model=b").run()).json) == 2
        refused = await get(gateway.app, "/slots")
        assert (refused.status, refused.json["error"]["reason"]) == (503, "model_not_loaded")


async def test_the_server_is_ready_once_the_kept_models_are_loaded() -> None:
    async with on_demand(kept="a", loads_at_once=False) as gateway:
        await anyio.wait_all_tasks_blocked()
        assert (await get(gateway.app, "/health")).json["status"] == "loading"
        gateway.opener.engines["a"].load()
        await gateway.until(a="loaded")
        assert (await get(gateway.app, "/health")).status == 200


async def test_the_server_stays_up_when_a_model_fails() -> None:
    async with (
        on_demand(loads_at_once=False) as gateway,
        AsgiCall(gateway.app, COMPLETIONS, b'{"prompt": "x", "model": "a"}').running() as call,
    ):
        await anyio.wait_all_tasks_blocked()
        assert await states(gateway) == {name: {"value": "loading" if name == "a" else "unloaded"} for name in "abc"}
        gateway.opener.engines["a"].fail("It broke.")
        await anyio.wait_all_tasks_blocked()
        assert (call.status, call.json["error"]["code"]) == (503, "model_unavailable")
        assert call.header("retry-after") == "60"
        assert (await states(gateway))["a"] == {"value": "unloaded", "failed": True, "detail": "It broke."}
        assert (await get(gateway.app, "/health")).status == 200


async def test_a_client_that_hangs_up_ends_the_load() -> None:
    async with on_demand(loads_at_once=False) as gateway:
        async with AsgiCall(gateway.app, COMPLETIONS, b'{"prompt": "x", "model": "a"}').running() as call:
            await anyio.wait_all_tasks_blocked()
            assert gateway.opener.opened == ["a"]
            call.hang_up()
        await gateway.until(a="unloaded")
        assert (call.start, gateway.opener.engines) == (None, {})


async def test_an_order_to_load_outlives_the_request_that_began_the_load() -> None:
    async with on_demand(loads_at_once=False) as gateway:
        async with AsgiCall(gateway.app, COMPLETIONS, b'{"prompt": "x", "model": "a"}').running() as call:
            await anyio.wait_all_tasks_blocked()
            assert (await post(gateway.app, "/models/load", {"model": "a"})).json == {"success": True}
            call.hang_up()
        await anyio.wait_all_tasks_blocked()
        assert await states(gateway) == {name: {"value": "loading" if name == "a" else "unloaded"} for name in "abc"}
        assert (await post(gateway.app, "/models/unload", {"model": "a"})).json == {"success": True}
        await gateway.until(a="unloaded")


async def test_a_wait_for_a_model_has_a_limit() -> None:
    async with on_demand(loads_at_once=False, queue_timeout=0) as gateway:
        reply = await post(gateway.app, COMPLETIONS, ask("a"))
        assert (reply.status, reply.json["error"]["code"]) == (503, "queue_timeout")


async def test_a_running_stream_keeps_its_model() -> None:
    async with on_demand() as gateway, anyio.create_task_group() as tasks:
        await post(gateway.app, COMPLETIONS, ask("a"))
        await post(gateway.app, COMPLETIONS, ask("b"))
        for name in "ab":
            gateway.opener.engines[name].script = lambda _generation: None
        streams = [
            AsgiCall(gateway.app, COMPLETIONS, b'{"prompt": "x", "model": "%c", "stream": true}' % of) for of in b"ab"
        ]
        for stream in streams:
            tasks.start_soon(stream.run)
        await anyio.wait_all_tasks_blocked()
        other = AsgiCall(gateway.app, COMPLETIONS, b'{"prompt": "x", "model": "c"}')
        tasks.start_soon(other.run)
        await anyio.wait_all_tasks_blocked()
        assert gateway.opener.opened == ["a", "b"]
        streams[1].hang_up()
        await gateway.until(c="loaded")
        assert (await states(gateway))["b"] == {"value": "unloaded"}
        streams[0].hang_up()


async def test_a_background_response_keeps_its_model_after_its_request() -> None:
    async with on_demand() as gateway, gateway.gateway.running():
        gateway.residents.models["a"].load()
        await gateway.until(a="loaded")
        gateway.opener.engines["a"].script = lambda _generation: None
        started = await post(gateway.app, "/v1/responses", {"input": "x", "model": "a", "background": True})
        assert started.status == 200
        await post(gateway.app, "/models/unload", {"model": "a"})
        await anyio.wait_all_tasks_blocked()
        assert (await states(gateway))["a"] == {"value": "loaded"}
        await post(gateway.app, f"/v1/responses/{started.json['id']}/cancel", {})
        await gateway.until(a="unloaded")


async def test_the_router_lists_loads_and_unloads() -> None:
    async with on_demand() as gateway:
        (first, *_) = (await get(gateway.app, "/models")).json["data"]
        assert (first["id"], first["status"], first["path"][-12:]) == ("a", {"value": "unloaded"}, "on_demand.py")
        assert (await post(gateway.app, "/models/load", {"model": "b"})).json == {"success": True}
        await gateway.until(b="loaded")
        again = await post(gateway.app, "/models/load", {"model": "b"})
        assert (again.status, again.json["error"]["reason"]) == (400, "already_loaded")
        assert (await post(gateway.app, "/models/unload", {"model": "b"})).json == {"success": True}
        await gateway.until(b="unloaded")
        again = await post(gateway.app, "/models/unload", {"model": "b"})
        assert (again.status, again.json["error"]["reason"]) == (400, "not_loaded")
        unknown = await post(gateway.app, "/models/load", {"model": "x"})
        assert (unknown.status, unknown.json["error"]["reason"]) == (404, "model_not_found")


async def test_the_fingerprint_is_that_of_the_file_that_was_loaded(tmp_path: Path) -> None:
    file = tmp_path / "m.gguf"
    seen = []
    async with on_demand(file=file) as gateway:
        for seconds in (1, 2):
            file.write_bytes(b"m")
            os.utime(file, (0, seconds))
            for _ in range(2):  # the second one finds the model loaded, whose file is gone
                reply = await post(gateway.app, COMPLETIONS, ask("a"))
                created = (await get(gateway.app, "/v1/models/a")).json["created"]
                seen.append((created, reply.json["system_fingerprint"]))
                file.unlink(missing_ok=True)
            await post(gateway.app, "/models/unload", {"model": "a"})
            await gateway.until(a="unloaded")
    assert [created for created, _ in seen] == [1, 1, 2, 2]
    assert len(set(seen)) == 2


async def test_an_order_to_unload_a_model_that_loads_holds_after_the_requests_that_wait_for_it() -> None:
    async with on_demand(loads_at_once=False) as gateway:
        async with AsgiCall(gateway.app, COMPLETIONS, b'{"prompt": "x", "model": "a"}').running() as call:
            await gateway.until(a="loading")
            assert (await post(gateway.app, "/models/unload", {"model": "a"})).json == {"success": True}
            gateway.opener.engines["a"].load()
        assert call.status == 200
        await gateway.until(a="unloaded")
    assert gateway.opener.opened == ["a"]


async def test_an_order_to_load_withdraws_an_unload_that_waits_for_a_request() -> None:
    async with on_demand() as gateway:
        await post(gateway.app, "/models/load", {"model": "a"})
        await gateway.until(a="loaded")
        gateway.opener.engines["a"].script = lambda _generation: None
        async with AsgiCall(gateway.app, COMPLETIONS, b'{"prompt": "x", "model": "a"}').running() as call:
            await anyio.wait_all_tasks_blocked()
            await post(gateway.app, "/models/unload", {"model": "a"})
            assert (await post(gateway.app, "/models/load", {"model": "a"})).json == {"success": True}
            again = await post(gateway.app, "/models/load", {"model": "a"})
            assert again.json["error"]["reason"] == "already_loaded"
            call.hang_up()
        await anyio.wait_all_tasks_blocked()
        assert (await states(gateway))["a"] == {"value": "loaded"}


async def test_a_model_that_is_loaded_at_the_start_may_be_unloaded_later() -> None:
    async with on_demand(first="a", loads_at_once=False) as gateway:
        await gateway.until(a="loading")
        assert (await get(gateway.app, "/readyz")).status == 503
        assert (await get(gateway.app, "/props")).status == 503
        gateway.opener.engines["a"].load()
        await gateway.until(a="loaded")
        assert (await get(gateway.app, "/props")).json["is_sleeping"] is False
        await post(gateway.app, "/models/unload", {"model": "a"})
        await gateway.until(a="unloaded")
        assert (await get(gateway.app, "/readyz")).status == 200
        assert (await get(gateway.app, "/props")).json["is_sleeping"] is True


async def test_a_single_model_cannot_be_unloaded() -> None:
    reply = await post(app_of(FakeEngine()), "/models/unload", {"model": "tiny"})
    assert (reply.status, reply.json["error"]["reason"]) == (400, "cannot_unload")


async def test_metrics_count_the_requests_that_wait_for_a_model() -> None:
    async with on_demand(loads_at_once=False) as gateway, anyio.create_task_group() as tasks:
        tasks.start_soon(AsgiCall(gateway.app, COMPLETIONS, b'{"prompt": "x", "model": "a"}').run)
        await anyio.wait_all_tasks_blocked()
        text = (await get(gateway.app, "/metrics")).content.decode()
        assert 'vllm:num_requests_waiting{engine="0",model_name="a"} 1.0' in text
        gateway.opener.engines["a"].load()
        await gateway.until(a="loaded")
        text = (await get(gateway.app, "/metrics")).content.decode()
        assert 'llama_gateway_model_host_bytes{engine="0",model_name="a"} 1.0' in text
        assert 'llama_gateway_model_host_bytes{engine="0",model_name="b"} 0.0' in text


async def test_metrics_have_all_models_loaded_or_not() -> None:
    async with on_demand() as gateway:
        await post(gateway.app, COMPLETIONS, ask("b"))
        text = (await get(gateway.app, "/metrics")).content.decode()
        families = {family.name: family for family in text_string_to_metric_families(text)}
        ready, unloaded = (
            {sample.labels["model_name"]: sample.value for sample in families[f"llama_gateway_engine_{name}"].samples}
            for name in ("ready", "unloaded")
        )
        assert ready == {"a": 0, "b": 1, "c": 0}
        assert unloaded == {"a": 1, "b": 0, "c": 1}


async def test_counters_go_on_when_a_model_is_loaded_again() -> None:
    async with on_demand() as gateway:
        for _ in range(2):
            await post(gateway.app, COMPLETIONS, ask("a"))
            engine = gateway.opener.engines["a"]
            engine.metrics, engine.status = EngineMetrics(generated_tokens=5), replace(engine.status, restarts=1)
            await post(gateway.app, "/models/unload", {"model": "a"})
            await gateway.until(a="unloaded")
        lines = (await get(gateway.app, "/metrics")).content.decode().splitlines()
        assert 'vllm:generation_tokens_total{engine="0",model_name="a"} 10.0' in lines
        assert "llamacpp:tokens_predicted_total 10.0" in lines
        assert 'llama_gateway_engine_restarts_total{engine="0",model_name="a"} 2.0' in lines
        assert (await get(gateway.app, "/health")).json["restarts"] == 2
