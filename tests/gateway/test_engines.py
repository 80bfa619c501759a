"""The sources of engines that the settings ask for."""

from contextlib import ExitStack
from pathlib import Path

import anyio
import pytest

from gateway.cli import read_settings
from gateway.engines import EnginesOnDemand, open_engines
from gateway.residency.estimate import estimate
from gateway.residency.memory import Memory
from gateway.residency.residents import EngineOnDemand
from gateway.residency.terms import Phase
from gateway.serving.sources import OpenEngine
from tests.gateway.residency.openers import FakeOpener
from tests.models import model_path

pytestmark = pytest.mark.anyio
ROOM = Memory(2**40)


async def test_a_single_model_is_opened_at_the_start() -> None:
    settings = read_settings(["serve", "--model", str(model_path()), "--threads", "1"], {})
    async with open_engines(settings, anyio.current_time) as sources:
        (source,) = sources.values()
        assert isinstance(source, OpenEngine)
        assert (await source.engine.ready()).description


async def test_several_models_are_opened_on_demand(caplog: pytest.LogCaptureFixture) -> None:
    flags = ("--model", f"a={model_path()}", "--model", f"b={model_path()}", "--models-memory", "1000")
    async with open_engines(read_settings(["serve", *flags], {}), anyio.current_time) as sources:
        assert [*sources] == ["a", "b"]
        assert all(isinstance(source, EngineOnDemand) and source.engine is None for source in sources.values())
    assert "the model b is estimated to need" in caplog.text
    assert "more than --models-memory and --models-gpu-memory allow" in caplog.text


async def test_a_kept_model_is_loaded_at_the_start_and_reports_its_memory(tmp_path: Path) -> None:
    config = tmp_path / "gateway.toml"
    config.write_text(f"threads = 1\nslots = 2\n[models.a]\nfile = '{model_path()}'\nkeep-loaded = true\n")
    async with open_engines(read_settings(["serve", "--config", str(config)], {}), anyio.current_time) as sources:
        source = sources["a"]
        with anyio.fail_after(60):
            await anyio.wait_all_tasks_blocked()
            assert source.engine is not None
            info = await source.engine.ready()
        assert (source.on_demand, source.status.state) == (False, "ready")
        assert info.host_memory > info.size


async def test_a_model_that_joins_again_while_it_loads_is_loaded_from_its_new_file(tmp_path: Path) -> None:
    old, new, opener = tmp_path / "old.gguf", tmp_path / "new.gguf", FakeOpener()
    old.write_bytes(bytes(1))
    new.write_bytes(bytes(100))
    settings = read_settings(["serve", "--model", str(model_path())], {})
    found = {model.name: estimate(settings.engine_config(model), ROOM) for model in settings.served}
    engines = EnginesOnDemand(settings, ROOM, found, lambda config, **_: opener(config.model))
    async with engines.residents.open(), anyio.create_task_group() as tasks:
        source = await engines.join(settings.joining("joined", old))
        with ExitStack() as held, anyio.fail_after(20):
            tasks.start_soon(source.hold, held)
            await anyio.wait_all_tasks_blocked()
            before = engines["joined"].account.need
            await engines.join(settings.joining("joined", new))
            await anyio.wait_all_tasks_blocked()
            assert engines["joined"].account.need == before + Memory(99)
            opener.engines[str(new)].load()
            await anyio.wait_all_tasks_blocked()
            assert engines["joined"].account.phase is Phase.LOADED
    assert opener.opened == [str(old), str(new)]


async def test_a_model_whose_load_has_failed_is_tried_at_once_if_it_joins_again(tmp_path: Path) -> None:
    """As after a pull that has brought its file back."""
    file, opener = tmp_path / "a.gguf", FakeOpener()
    file.write_bytes(bytes(1))
    settings = read_settings(["serve", "--model", str(model_path())], {})
    found = {model.name: estimate(settings.engine_config(model), ROOM) for model in settings.served}
    engines = EnginesOnDemand(settings, ROOM, found, lambda config, **_: opener(config.model))
    async with engines.residents.open():
        joining = settings.joining("joined", file)
        source = await engines.join(joining)
        source.load()
        await anyio.wait_all_tasks_blocked()
        opener.engines[str(file)].fail("There is no such file.")
        await anyio.wait_all_tasks_blocked()
        await engines.join(joining)
        with ExitStack() as held, anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(source.hold, held)
                await anyio.wait_all_tasks_blocked()
                opener.engines[str(file)].load()
            await engines.join(joining)
            await anyio.wait_all_tasks_blocked()
            assert engines["joined"].account.phase is Phase.LOADED
        await anyio.wait_all_tasks_blocked()
        assert engines["joined"].account.phase is Phase.LOADED, "its file is the one that is loaded"
    assert opener.opened == [str(file)] * 2
