"""Loading as the engine process does it, in this process."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import gguf
import pytest

from engine.config import EngineConfig
from engine.hardware import Hardware
from engine.info import ModelInfo
from engine.llama import devices
from engine.llama.memory.gpu_share import DRIVER
from engine.worker import main as program
from engine.worker.main import load
from tests.models import model_path
from tests.random_bert import write_random_bert


def of_model(_folder: Path) -> Path:
    return model_path()


def of_embedder(folder: Path) -> Path:
    write_random_bert(folder / "bert.gguf", gguf.PoolingType.MEAN)
    return folder / "bert.gguf"


@pytest.mark.parametrize("path", [of_model, of_embedder])
def test_gpu_memory_that_another_process_takes_during_the_load_is_not_counted(
    path: Callable[[Path], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = devices.all_devices()[0]
    free = iter([80 * 2**30, 20 * 2**30])
    monkeypatch.setattr(devices, "gpu_memory", lambda: next(free))
    monkeypatch.setattr(devices, "gpus", lambda: [gpu])
    config = EngineConfig(model=str(path(tmp_path)), slots=1, context=256, threads=1, hardware=Hardware(devices=()))
    with ExitStack() as stack:
        info = load(config, lambda _share: None, stack).model.info
    assert info.gpu_memory == DRIVER


@pytest.mark.parametrize("path", [of_model, of_embedder])
def test_the_buffers_are_those_of_the_model_without_its_process_and_its_prefix_store(
    path: Callable[[Path], Path], tmp_path: Path
) -> None:
    def loaded(prefix_store: int) -> ModelInfo:
        config = EngineConfig(model=str(path(tmp_path)), slots=1, context=256, threads=1, prefix_store=prefix_store)
        with ExitStack() as stack:
            return load(config, lambda _share: None, stack).model.info

    small, large = loaded(0), loaded(2**40)
    assert small.host_buffers == large.host_buffers < small.host_memory
    assert small.host_buffers > small.size + small.cells * small.cell_bytes - 2**14  # the log is exact to 5 KiB


def test_more_threads_than_processors_have_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(program, "usable_processors", lambda: 1)
    config = EngineConfig(model=str(model_path()), slots=1, context=256, threads=1, threads_batch=2)
    with ExitStack() as stack:
        load(config, lambda _share: None, stack)
    [warning] = [record.message for record in caplog.records if "processors" in record.message]
    assert warning.startswith("--threads-batch 2 is more than")
