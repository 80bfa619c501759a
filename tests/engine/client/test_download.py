"""A model that is downloaded before its engine process starts."""

from collections.abc import Callable

import anyio
import pytest

from engine import EngineConfig, EngineState, LoadError, Unavailable
from engine.client.repack_cache import RepackCache
from tests.engine.client.harness import FOREVER, Scripted, text

pytestmark = pytest.mark.anyio


class HeldDownload:
    """A download that waits for the test."""

    def __init__(self) -> None:
        self.report: Callable[[float], None] = lambda _share: None
        self.asked = anyio.Event()
        self.complete = anyio.Event()
        self.cancelled = False
        self.failure = ""

    async def __call__(self, progress: Callable[[float], None]) -> EngineConfig:
        self.report = progress
        self.asked.set()
        try:
            await self.complete.wait()
        except anyio.get_cancelled_exc_class():
            self.cancelled = True
            raise
        if self.failure:
            raise LoadError(self.failure, code="load_failed")
        return EngineConfig(model="downloaded.gguf")


async def test_a_download_is_a_state_with_progress_and_the_process_starts_after_it(scripted: Scripted) -> None:
    download = HeldDownload()
    async with scripted.open(ready=False, download=download) as engine:
        await download.asked.wait()
        engine.set_log_level("debug")
        download.report(0.5)
        download.report(0.25)
        assert (engine.status.state, engine.status.progress) == (EngineState.DOWNLOADING, 0.5)
        assert engine.status.detail == "The model is being downloaded."
        assert engine.seconds_to_ready is not None
        assert [engine.file] == [None]
        assert not scripted.journal.exists()
        with pytest.raises(Unavailable, match="being downloaded"):
            await text(engine, "finish")
        download.complete.set()
        await engine.ready()
        assert engine.file == "downloaded.gguf"
        assert await scripted.saw(engine, "level debug") == 1
        assert await text(engine, "accept; say well; finish") == "well"
    assert scripted.count("configure") == 1


async def test_a_recorded_crash_counts_for_a_model_that_is_downloaded(scripted: Scripted) -> None:
    RepackCache().record(works=False)
    download = HeldDownload()
    download.complete.set()
    async with scripted.open(download=download):
        assert scripted.count("configure repack=False") == 1


async def test_a_download_that_fails_is_a_model_that_cannot_be_loaded(scripted: Scripted) -> None:
    download = HeldDownload()
    download.failure = "someone/some-GGUF is gated"
    download.complete.set()
    async with scripted.open(ready=False, download=download) as engine:
        with pytest.raises(LoadError, match="is gated"):
            await engine.ready()
        assert engine.status.state is EngineState.FAILED
    assert not scripted.journal.exists()


async def test_a_stop_cancels_the_download(scripted: Scripted) -> None:
    download = HeldDownload()
    with anyio.fail_after(FOREVER):
        async with scripted.open(ready=False, download=download) as engine:
            await download.asked.wait()
    assert download.cancelled
    assert engine.status.state is EngineState.STOPPED
