"""Pulls and deletions by Ollama's API, on fake engines and a fake hub."""

import errno
import logging
import os
from collections.abc import Collection
from contextlib import ExitStack
from pathlib import Path
from threading import Event
from typing import Any

import anyio
import anyio.from_thread
import anyio.to_thread
import orjson
import pytest

from engine import EngineMetrics
from gateway.hub.errors import MISSING, HubError
from gateway.hub.pulled import LIST, LOCKS, PulledModels
from gateway.hub.reference import HubReference
from gateway.keys.key import Key, KeyLimits
from gateway.keys.ring import KeyRing
from gateway.keys.secret import hash_of
from gateway.pulls.downloads import MAX_DOWNLOADS
from tests.gateway.application import NAME, app_of, app_with_keys
from tests.gateway.asgi import AsgiCall, get, post
from tests.gateway.fake_engine import FakeEngine
from tests.gateway.keys.memory_store import MemoryKeyStore
from tests.gateway.metrics.scraped import scrape
from tests.gateway.pulls_on_fakes import DIGEST, SIZE, Pulling, pulling
from tests.threads import refuse_in_thread

pytestmark = pytest.mark.anyio

MODEL = "hf.co/someone/some-GGUF:Q8_0"
SHORT = f"pulling {DIGEST[:12]}"
FILE = {"status": SHORT, "digest": f"sha256:{DIGEST}", "total": SIZE}


def pull_call(gateway: Pulling, model: str = MODEL, **more: object) -> AsgiCall:
    return AsgiCall(gateway.app, "/api/pull", orjson.dumps({"model": model, **more}))


async def delete(gateway: Pulling, model: str = MODEL, **headers: str) -> AsgiCall:
    return await AsgiCall(gateway.app, "/api/delete", orjson.dumps({"model": model}), "DELETE", headers).run()


def lines(call: AsgiCall) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in call.content.splitlines()]


def found(folder: Path, pattern: str) -> list[str]:
    return [path.name for path in folder.rglob(pattern) if LOCKS not in path.parts]


def remove_file_of(folder: Path, repository: str) -> None:
    next((folder / repository).rglob("*.gguf")).unlink()


def damage_list(folder: Path, models: object) -> None:
    (path,) = folder.rglob(LIST)
    path.write_bytes(orjson.dumps({**orjson.loads(path.read_bytes()), "models": models}))


async def names(gateway: Pulling) -> list[str]:
    return [model["name"] for model in (await get(gateway.app, "/api/tags")).json["models"]]


async def pulled(gateway: Pulling, model: str = MODEL) -> None:
    gateway.hub.go.set()
    assert (await pull_call(gateway, model, stream=False).run()).json == {"status": "success"}


async def test_a_pull_reports_its_progress_and_the_model_is_served(tmp_path: Path) -> None:
    async with pulling(tmp_path) as gateway, pull_call(gateway).running() as call:
        await call.sent(2)
        assert lines(call) == [{"status": "pulling manifest"}, {**FILE, "completed": SIZE // 2}]
        assert await names(gateway) == ["tiny:latest"]
        gateway.hub.go.set()
        while not call.complete:
            await anyio.lowlevel.checkpoint()
        assert call.header("content-type") == "application/x-ndjson"
        ends = [{"status": status} for status in ("verifying sha256 digest", "writing manifest", "success")]
        assert lines(call)[2:] == [{**FILE, "completed": SIZE}, *ends]
        assert await names(gateway) == ["tiny:latest", MODEL]
        for name in (MODEL, "hf:someone/some-GGUF:Q8_0", "someone/some-GGUF:q8_0"):
            answer = await post(gateway.app, "/v1/completions", {"model": name, "prompt": "x"})
            assert (answer.status, answer.json["model"]) == (200, MODEL)
        router = {model["id"]: model for model in (await get(gateway.app, "/models")).json["data"]}
        assert router[MODEL]["status"] == {"value": "loaded"}
        assert f'model_name="{MODEL}"' in (await get(gateway.app, "/metrics")).content.decode()


@pytest.mark.parametrize(
    ("name", "fetched"),
    [
        ("someone/some-GGUF", "hf:someone/some-GGUF"),
        ("hf.co/someone/some-GGUF:latest", "hf:someone/some-GGUF"),
        ("huggingface.co/someone/some-GGUF:q4_k_m", "hf:someone/some-GGUF:Q4_K_M"),
        ("hf:someone/some-GGUF/a/b.gguf", "hf:someone/some-GGUF/a/b.gguf"),
    ],
)
async def test_names_of_the_hub_have_several_forms(tmp_path: Path, name: str, fetched: str) -> None:
    async with pulling(tmp_path) as gateway:
        gateway.hub.fail(HubError("x"))
        await pull_call(gateway, name).run()
        assert gateway.hub.fetched == [fetched]


async def test_an_empty_name_is_not_given(tmp_path: Path) -> None:
    async with pulling(tmp_path) as gateway:
        gateway.hub.fail(HubError("x"))
        await pull_call(gateway, "someone/some-GGUF", name="").run()
        await pull_call(gateway, "", name="someone/some-GGUF").run()
        assert gateway.hub.fetched == ["hf:someone/some-GGUF"] * 2
        assert (await pull_call(gateway, "", name="").run()).status == 400


@pytest.mark.parametrize("name", ["llama3.2", "qwen3:0.6b", "hf.co/../x", "registry.ollama.ai/library/qwen3:latest"])
async def test_models_of_other_places_are_refused(tmp_path: Path, name: str) -> None:
    async with pulling(tmp_path) as gateway:
        call = await pull_call(gateway, name).run()
        assert (call.status, "hf.co/USER/REPO:QUANT" in call.json["error"]) == (400, True)
        assert (await post(gateway.app, "/api/pull", {})).status == 400
        assert (await pull_call(gateway, insecure=True).run()).status == 400
        assert gateway.hub.fetched == []


async def test_one_download_serves_all_that_wait_and_ends_with_the_last(tmp_path: Path) -> None:
    async with pulling(tmp_path) as gateway, anyio.create_task_group() as tasks:
        first, second = pull_call(gateway), pull_call(gateway, "someone/some-GGUF:Q8_0", stream=False)
        for call in (first, second):
            tasks.start_soon(call.run)
        await first.sent(2)
        await anyio.wait_all_tasks_blocked()
        assert gateway.hub.fetched == ["hf:someone/some-GGUF:Q8_0"]
        first.hang_up()
        await anyio.wait_all_tasks_blocked()
        assert gateway.hub.cancelled == []
        second.hang_up()
        await anyio.wait_all_tasks_blocked()
        assert gateway.hub.cancelled == ["hf:someone/some-GGUF:Q8_0"]
        assert (await names(gateway), found(tmp_path, LIST)) == (["tiny:latest"], [])
        await pulled(gateway)
        assert await names(gateway) == ["tiny:latest", MODEL]


async def test_failures_are_the_last_line_or_the_status(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with pulling(tmp_path) as gateway:
        gateway.hub.fail(HubError("there is no such model", code=MISSING))
        call = await pull_call(gateway).run()
        assert (call.status, lines(call)[-1]) == (200, {"error": "there is no such model"})
        whole = await pull_call(gateway, stream=False).run()
        assert (whole.status, whole.json) == (404, {"error": "there is no such model"})
        gateway.hub.fail(HubError(f"no room in {tmp_path}/blobs"))
        whole = await pull_call(gateway, stream=False).run()
        assert (whole.status, whole.json) == (503, {"error": "no room in the hub's cache/blobs"})
        assert f"no room in {tmp_path}/blobs" in caplog.text
        gateway.hub.failure = RuntimeError("a defect")
        with caplog.at_level(logging.CRITICAL):
            assert (await pull_call(gateway, stream=False).run()).status == 500
        assert await names(gateway) == ["tiny:latest"]


async def test_a_model_that_cannot_be_listed_is_not_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def cannot_write(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), f"{tmp_path}/{LIST}")

    async with pulling(tmp_path) as gateway:
        gateway.hub.go.set()
        with monkeypatch.context() as patched:
            patched.setattr(PulledModels, "add", cannot_write)
            call = await pull_call(gateway).run()
        assert lines(call)[-1] == {"error": f"[Errno 28] No space left on device: 'the hub's cache/{LIST}'"}
        assert f"cannot pull hf:someone/some-GGUF:Q8_0: [Errno 28] No space left on device: '{tmp_path}" in caplog.text
        assert await names(gateway) == ["tiny:latest"]
        await pulled(gateway)
        assert await names(gateway) == ["tiny:latest", MODEL]


async def test_downloads_at_the_same_time_have_a_limit(tmp_path: Path) -> None:
    async with pulling(tmp_path) as gateway, anyio.create_task_group() as tasks:
        calls = [pull_call(gateway, f"someone/some-{number}") for number in range(MAX_DOWNLOADS)]
        for call in calls:
            tasks.start_soon(call.run)
            await call.sent(2)
        refused = await pull_call(gateway).run()
        assert (refused.status, "are being pulled" in refused.json["error"]) == (429, True)
        for call in calls:
            call.hang_up()


async def test_a_deleted_model_is_unloaded_and_its_files_are_gone(tmp_path: Path) -> None:
    async with pulling(tmp_path) as gateway:
        await pulled(gateway)
        await post(gateway.app, "/v1/completions", {"model": MODEL, "prompt": "x"})
        assert list(gateway.host.opener.engines) == [MODEL]
        assert (await delete(gateway)).status == 200
        assert (gateway.host.opener.engines, found(tmp_path, "*")) == ({}, [])
        assert await names(gateway) == ["tiny:latest"]
        assert (await post(gateway.app, "/api/chat", {"model": MODEL})).status == 404
        assert (await delete(gateway)).status == 404


async def test_a_lack_of_threads_leaves_the_files_of_a_deleted_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with pulling(tmp_path) as gateway:
        await pulled(gateway)
        with monkeypatch.context() as full:
            full.setattr(anyio.to_thread, "run_sync", refuse_in_thread)
            assert (await delete(gateway)).status == 200
        assert "cannot remove the files" in caplog.text
        await pulled(gateway)


async def test_the_sums_of_llama_server_do_not_fall_when_a_model_is_deleted(tmp_path: Path) -> None:
    async def count_with(tokens: int) -> tuple[float, float]:
        """Return the counts after a pull and the computation of so many tokens, and after the deletion."""
        await pulled(gateway)
        await post(gateway.app, "/v1/completions", {"model": MODEL, "prompt": "x"})
        gateway.host.opener.engines[MODEL].metrics = EngineMetrics(generated_tokens=tokens)
        before = await count()
        await delete(gateway)
        return before, await count()

    async def count() -> float:
        return scrape((await get(gateway.app, "/metrics")).content).value("llamacpp:tokens_predicted_total")

    async with pulling(tmp_path) as gateway:
        assert [await count_with(10), await count_with(3)] == [(10, 10), (13, 13)]


async def test_requests_outlive_the_deletion_of_their_model(tmp_path: Path) -> None:
    async with pulling(tmp_path) as gateway, anyio.create_task_group() as tasks:
        await pulled(gateway)
        await post(gateway.app, "/v1/completions", {"model": MODEL, "prompt": "x"})
        engine = gateway.host.opener.engines[MODEL]
        engine.script = lambda _generation: None
        running = AsgiCall(gateway.app, "/v1/completions", orjson.dumps({"model": MODEL, "prompt": "x"}))
        tasks.start_soon(running.run)
        await anyio.wait_all_tasks_blocked()
        assert (await delete(gateway)).status == 200
        assert (await post(gateway.app, "/v1/completions", {"model": MODEL, "prompt": "x"})).status == 404
        again = pull_call(gateway, stream=False)
        tasks.start_soon(again.run)  # waits for the removal
        await anyio.wait_all_tasks_blocked()
        assert (again.start, list(gateway.host.opener.engines)) == (None, [MODEL])
        running.hang_up()
        while not again.complete:
            await anyio.lowlevel.checkpoint()
        assert (len(gateway.hub.fetched), await names(gateway)) == (2, ["tiny:latest", MODEL])


async def test_a_model_that_was_deleted_while_in_use_is_gone_after_a_restart(tmp_path: Path) -> None:
    with ExitStack() as held:
        async with pulling(tmp_path) as gateway:
            await pulled(gateway)
            await gateway.host.residents.models[MODEL].hold(held)
            assert (await delete(gateway)).status == 200
    async with pulling(tmp_path) as gateway:
        assert (await names(gateway), found(tmp_path, "*")) == (["tiny:latest"], [])


async def test_requests_that_wait_outlive_the_deletion_of_their_model(tmp_path: Path) -> None:
    async with pulling(tmp_path) as gateway, anyio.create_task_group() as tasks:
        await pulled(gateway)
        gateway.host.opener.loads_at_once = False
        waiting = AsgiCall(gateway.app, "/api/generate", orjson.dumps({"model": MODEL, "keep_alive": "1m"}))
        tasks.start_soon(waiting.run)
        await anyio.wait_all_tasks_blocked()
        assert (await delete(gateway)).status == 200
        gateway.host.opener.engines[MODEL].load()
        while not waiting.complete:
            await anyio.lowlevel.checkpoint()
        assert waiting.status == 200


async def test_a_model_deleted_twice_during_a_pull_is_removed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add, listing, go_on = PulledModels.add, anyio.Event(), Event()

    def add_late(self: PulledModels, reference: HubReference, before: Collection[str]) -> None:
        anyio.from_thread.run_sync(listing.set)
        assert go_on.wait(20)
        add(self, reference, before)

    async with pulling(tmp_path) as gateway:
        await pulled(gateway)
        monkeypatch.setattr(PulledModels, "add", add_late)
        gateway.hub.go = anyio.Event()
        async with anyio.create_task_group() as tasks:
            again = pull_call(gateway)
            tasks.start_soon(again.run)
            await again.sent(2)
            assert (await delete(gateway)).status == 200  # removes the files after the pull
            gateway.hub.go.set()
            await listing.wait()
            assert await names(gateway) == ["tiny:latest"]  # what is not listed is not served
            go_on.set()
            while not again.complete:
                await anyio.lowlevel.checkpoint()
            assert (await delete(gateway)).status == 200
        await pulled(gateway)
        assert (await delete(gateway)).status == 200
        assert (await names(gateway), found(tmp_path, "*")) == (["tiny:latest"], [])


async def test_files_that_were_there_before_or_that_others_use_stay(tmp_path: Path) -> None:
    async with pulling(tmp_path) as gateway:
        await pulled(gateway, "someone/some-GGUF")
        await pulled(gateway, "someone/some-GGUF:Q4_K_M")
        await delete(gateway, "someone/some-GGUF")
        assert found(tmp_path, "*.gguf") == ["some-Q4_K_M.gguf"]
        await delete(gateway, "someone/some-GGUF:Q4_K_M")
        assert found(tmp_path, "*.gguf") == []
        gateway.hub.place(gateway.hub.reference(MODEL))
        await pulled(gateway)
        await delete(gateway)
        assert found(tmp_path, "*.gguf") == ["some-Q8_0.gguf"]


async def test_pulled_models_are_served_after_a_restart(tmp_path: Path) -> None:
    async with pulling(tmp_path) as gateway:
        await pulled(gateway)
        await pulled(gateway, "someone/other")
    remove_file_of(tmp_path, "models--someone--other")
    async with pulling(tmp_path) as gateway:
        assert await names(gateway) == ["tiny:latest", MODEL]
        assert (await delete(gateway)).status == 200
    async with pulling(tmp_path) as gateway:
        assert await names(gateway) == ["tiny:latest"]


@pytest.mark.parametrize("models", [["someone/some-GGUF"], [5], {"a": 1}, None])
async def test_a_damaged_list_ends_no_server(tmp_path: Path, models: object, caplog: pytest.LogCaptureFixture) -> None:
    async with pulling(tmp_path) as gateway:
        await pulled(gateway)
        damage_list(tmp_path, models)
        assert (await delete(gateway)).status == 200
        assert await names(gateway) == ["tiny:latest"]
    assert "cannot be read" in caplog.text


async def test_models_of_the_command_line_cannot_be_deleted(tmp_path: Path) -> None:
    async with pulling(tmp_path) as gateway:
        refused = await delete(gateway, "tiny:latest")
        assert refused.status == 403
        assert "was started with it" in refused.json["error"]


@pytest.mark.parametrize("name", [NAME, f"{NAME}:latest", "default"])
async def test_a_model_that_the_server_was_started_with_needs_no_pull(tmp_path: Path, name: str) -> None:
    body = {"model": name}
    async with pulling(tmp_path) as gateway:
        for app in (gateway.app, app_of(FakeEngine())):
            streamed = await post(app, "/api/pull", body)
            assert streamed.header("content-type") == "application/x-ndjson"
            assert lines(streamed) == [{"status": "pulling manifest"}, {"status": "success"}]
            assert (await post(app, "/api/pull", body | {"stream": False})).json == {"status": "success"}
        assert gateway.hub.fetched == []


async def test_a_key_pulls_no_model_that_it_may_not_use() -> None:
    store = MemoryKeyStore()
    await store.add(Key(id="key_other", name="other", models=frozenset({"other"})), hash_of("sk-other"))
    ring = KeyRing((), store)
    await ring.load()
    body = orjson.dumps({"model": NAME})
    call = AsgiCall(app_with_keys(ring, FakeEngine()), "/api/pull", body, headers={"authorization": "Bearer sk-other"})
    assert (await call.run()).status == 403


async def test_without_the_flag_pulls_and_deletions_are_refused() -> None:
    app = app_of(FakeEngine())
    for method, path in (("POST", "/api/pull"), ("DELETE", "/api/delete")):
        refused = await AsgiCall(app, path, orjson.dumps({"model": "someone/some-GGUF"}), method).run()
        assert (refused.status, "--allow-pull" in refused.json["error"]) == (403, True)


async def test_keys_with_limits_may_not_pull_or_delete(tmp_path: Path) -> None:
    store = MemoryKeyStore()
    await store.add(Key(id="key_free", name="free"), hash_of("sk-free"))
    await store.add(Key(id="key_some", name="some", models=frozenset({MODEL})), hash_of("sk-some"))
    await store.add(Key(id="key_few", name="few", limits=KeyLimits(requests_per_minute=9)), hash_of("sk-few"))
    ring = KeyRing((), store)
    await ring.load()
    async with pulling(tmp_path, keys=ring) as gateway:
        gateway.hub.go.set()
        for name, status in (("some", 403), ("few", 403), ("free", 200)):
            call = pull_call(gateway, stream=False)
            call.headers = {"authorization": f"Bearer sk-{name}"}
            assert (await call.run()).status == status
            assert (await delete(gateway, authorization=f"Bearer sk-{name}")).status == status


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/api/create"),
        ("POST", "/api/copy"),
        ("POST", "/api/push"),
        ("POST", "/api/blobs/sha256:00"),
        ("HEAD", "/api/blobs/sha256:00"),
    ],
)
async def test_what_has_no_meaning_here_is_refused(method: str, path: str) -> None:
    refused = await AsgiCall(app_of(FakeEngine()), path, b"{}", method).run()
    assert refused.status == 501
    assert refused.json["error"].startswith("This server does not ")
