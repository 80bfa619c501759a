"""Progress of loading in the log."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import anyio
import pytest

from engine import Engine, EngineState, EngineStatus, LoadError, ModelInfo, Unavailable
from engine.client.status import StatusBoard
from gateway.cli import read_settings
from gateway.loading import describe, log_loading, wait_until_loaded
from gateway.serving.sources import OpenEngine
from tests.gateway.fake_engine import MODEL
from tests.models import model_path

if TYPE_CHECKING:
    from gateway.serving.sources import EngineSource

pytestmark = pytest.mark.anyio


class Loads:
    """Engine that the test loads."""

    def __init__(self) -> None:
        self._board = StatusBoard()
        self.status_changed = self._board.changed

    @property
    def status(self) -> EngineStatus:
        return self._board.latest

    async def ready(self) -> ModelInfo:
        while (status := self.status).state is not EngineState.READY:
            if status.state is EngineState.FAILED:
                raise LoadError(status.detail)
            if status.state is EngineState.STOPPED:
                raise Unavailable(status.detail)
            await self.status_changed(status)
        return MODEL

    def post(self, state: EngineState, progress: float = 0.0, cause: str = "") -> None:
        self._board.post(EngineStatus(state, "", progress, 0, cause))


@pytest.mark.parametrize(
    ("downloaded", "lines"),
    [([], ["loading m: 0 %"]), ([0.01, 0.5], ["downloading m: 1 %", "downloading m: 50 %", "loading m: 0 %"])],
    ids=["on this machine", "on the hub"],
)
async def test_a_download_is_logged_once_it_makes_progress(
    caplog: pytest.LogCaptureFixture, downloaded: list[float], lines: list[str]
) -> None:
    engine = Loads()
    engine.post(EngineState.DOWNLOADING)
    with caplog.at_level(logging.INFO):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait_until_loaded, "m", cast("Engine", engine))
            for progress in downloaded:
                await anyio.wait_all_tasks_blocked()
                engine.post(EngineState.DOWNLOADING, progress)
            for state in (EngineState.LOADING, EngineState.READY):
                await anyio.wait_all_tasks_blocked()
                engine.post(state)
    assert [record.getMessage() for record in caplog.records] == lines


async def test_a_failure_is_logged_with_the_full_path(caplog: pytest.LogCaptureFixture) -> None:
    engine = Loads()
    engine.post(EngineState.FAILED, cause="/folder/m.gguf is not a GGUF file")
    assert await wait_until_loaded("m", cast("Engine", engine)) is None
    assert [record.getMessage() for record in caplog.records] == ["cannot serve m: /folder/m.gguf is not a GGUF file"]


@pytest.mark.parametrize("end", [EngineState.READY, EngineState.STOPPED])
async def test_a_model_may_be_lost_while_another_one_is_loading(
    end: EngineState, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = Loads(), Loads()
    sources = {"a": OpenEngine(cast("Engine", first)), "b": OpenEngine(cast("Engine", second))}
    first.post(EngineState.READY)
    second.post(EngineState.LOADING)
    shutdown = anyio.Event()
    with caplog.at_level(logging.INFO):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(log_loading, sources, ["http://host"], read_settings(["serve"], {}), shutdown)
            await anyio.wait_all_tasks_blocked()
            first.post(EngineState.RESTARTING)
            second.post(EngineState.READY)
            await anyio.wait_all_tasks_blocked()
            first.post(end)
    assert not shutdown.is_set()


async def test_a_server_that_stops_while_a_model_is_loading_is_not_called_listening(
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine = Loads()
    engine.post(EngineState.LOADING)
    sources = {"m": OpenEngine(cast("Engine", engine))}
    shutdown = anyio.Event()
    with caplog.at_level(logging.INFO):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(log_loading, sources, ["http://host"], read_settings(["serve"], {}), shutdown)
            await anyio.wait_all_tasks_blocked()
            shutdown.set()
            engine.post(EngineState.READY)
    assert [line for line in caplog.messages if "listening" in line] == []


@pytest.mark.parametrize(
    ("kept", "words"),
    [
        ([], "a, b on demand"),
        (["b"], "b loaded at the start and a on demand"),
        (["a", "b"], "a, b loaded at the start"),
    ],
    ids=["none", "one", "all"],
)
async def test_models_that_are_kept_loaded_are_not_called_on_demand(
    kept: list[str], words: str, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    keeps = {name: "keep-loaded = true" if name in kept else "" for name in "ab"}
    file = tmp_path / "gateway.toml"
    file.write_text("".join(f"[models.{name}]\nfile = '{model_path()}'\n{line}\n" for name, line in keeps.items()))
    settings = read_settings(["serve", "--config", str(file)], {})
    sources = dict.fromkeys("ab", cast("EngineSource", None))
    with caplog.at_level(logging.INFO):
        await log_loading(sources, ["http://host"], settings, anyio.Event())
    assert [record.getMessage() for record in caplog.records] == [f"listening on http://host, serving {words}"]


@pytest.mark.parametrize(("slots", "use"), [(1, "1 slot of 100 tokens"), (2, "2 slots of 100 tokens each")])
async def test_the_slots_of_a_model_are_shown(slots: int, use: str) -> None:
    assert describe("m", replace(MODEL, slots=slots, context=100, cells=100 * slots)).endswith(f": {use}")


@pytest.mark.parametrize(("ranks", "use"), [(False, "embeddings only"), (True, "ranking only")])
async def test_the_use_of_a_model_that_does_not_generate_is_shown(ranks: bool, use: str) -> None:
    assert describe("m", replace(MODEL, generates=False, ranks=ranks)).endswith(f": {use}")
