"""A model of the hub beside another one: what the load takes that downloads it."""

from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from engine import LoadError, Unavailable, embedded_model, open_engine
from gateway.cli import read_settings
from gateway.engines import EnginesOnDemand
from gateway.hub.cache import HubCache
from gateway.hub.engine import open_hub_engine
from gateway.residency.estimate import Estimate, estimate
from gateway.residency.memory import Memory
from gateway.residency.terms import Phase
from gateway.settings import Settings
from tests.gateway.hub.local_hub import REPOSITORY, hub_of_the_embedded_model
from tests.threads import refuse_in_thread

pytestmark = pytest.mark.anyio
ROOM = Memory(2**40)
CELLS = 64 * 1024 * 4096
"""Bytes of the KV cache of the model on the hub."""
GUARD = 60


@pytest.fixture(autouse=True)
def _hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with hub_of_the_embedded_model(monkeypatch, tmp_path):
        monkeypatch.setattr("gateway.hub.opening.hub_cache", lambda: HubCache(tmp_path / "hub"))
        yield


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Settings of a small model in a file and of one on the hub, which takes more memory for its slots."""
    file = tmp_path / "gateway.toml"
    file.write_text(
        f"threads = 1\nprefix-store = 0\n[models.file]\nfile = '{embedded_model()}'\nslots = 1\ncontext = 512\n"
        f"[models.hub]\nfile = 'hf:{REPOSITORY}'\nslots = 64\ncontext = 1024\n"
    )
    return read_settings(["serve", "--config", str(file)], {})


def estimates(settings: Settings) -> dict[str, Estimate]:
    return {model.name: estimate(settings.engine_config(model), ROOM) for model in settings.served}


@asynccontextmanager
async def opened(settings: Settings, beside: int) -> AsyncIterator[EnginesOnDemand]:
    """Open the engines with room for so many bytes beside the model of the file, which is loaded and idle."""
    found = estimates(settings)
    async with open_engine(found["file"].config) as engine:
        taken = (await engine.ready()).host_memory
    open_config = partial(open_hub_engine, clock=anyio.current_time, offline=False)
    engines = EnginesOnDemand(settings, Memory(taken + beside), found, open_config)
    with anyio.fail_after(GUARD):
        async with engines.residents.open():
            with ExitStack() as held:
                await engines["file"].hold(held)
            yield engines


async def test_a_model_waits_for_its_room_between_its_download_and_its_load(settings: Settings) -> None:
    process = estimates(settings)["hub"].need.host
    async with opened(settings, process + CELLS * 7 // 8) as engines:
        with ExitStack() as held:
            await engines["hub"].hold(held)
            assert engines["file"].account.phase is Phase.UNLOADED
        assert estimates(settings)["hub"].need.host > process + CELLS


async def test_a_model_with_room_is_loaded_at_once(settings: Settings) -> None:
    async with opened(settings, 4 * CELLS) as engines:
        with ExitStack() as held:
            await engines["hub"].hold(held)
            assert engines["file"].account.phase is Phase.LOADED


async def test_a_lack_of_threads_fails_only_the_load(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(settings, 4 * CELLS) as engines:
        monkeypatch.setattr(anyio.to_thread, "run_sync", refuse_in_thread)
        with ExitStack() as held, pytest.raises(Unavailable, match="cannot be estimated: can't start new thread"):
            await engines["hub"].hold(held)
        assert engines["file"].account.phase is Phase.LOADED


async def test_a_model_that_turns_out_too_large_is_refused_and_no_other_is_unloaded(settings: Settings) -> None:
    process = estimates(settings)["hub"].need.host
    async with opened(settings, process + CELLS // 8) as engines:
        with ExitStack() as held, pytest.raises(LoadError) as caught:
            await engines["hub"].hold(held)
        assert caught.value.code == "model_too_large"
        assert engines["file"].account.phase is Phase.LOADED
