"""The plan of a load, with GPUs that are fakes."""

import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.config import EngineConfig
from engine.errors import LoadError
from engine.gguf.cells import layer_cells
from engine.gguf.header import read_header
from engine.hardware import ALL_LAYERS, Hardware
from engine.llama import devices
from engine.llama.hardware import memory_lock
from engine.llama.hardware.fitting import layer_bytes, output_bytes
from engine.llama.hardware.model_file import read_tensors
from engine.llama.hardware.plan import LoadPlan, plan_load
from tests.architectures.models import family_model
from tests.engine.llama.hardware.test_placement import CPU, FakeDevice

MARGIN = 2**30


@pytest.fixture
def model() -> Path:
    return family_model("qwen-3-moe")


@pytest.fixture
def plan(model: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., LoadPlan]:
    """Return a function that plans a load on GPUs with so much free memory."""

    def planned(*free: int, **fields: Any) -> LoadPlan:
        gpus = [FakeDevice(at + 2, f"CUDA{at}", room=room) for at, room in enumerate(free)]
        monkeypatch.setattr(devices, "all_devices", lambda: [CPU, *gpus])
        monkeypatch.setattr(devices, "gpus", lambda: gpus)
        monkeypatch.setattr(devices, "buffer_types", lambda: {"CPU": 1})
        return plan_load(EngineConfig(model=str(model), slots=1, context=256, **fields))

    return planned


def experts(model: Path) -> int:
    return sum(size for name, size in read_tensors(model).items() if "_exps" in name)


def test_without_a_gpu_nothing_is_placed(plan: Callable[..., LoadPlan]) -> None:
    planned = plan()
    assert (planned.placement.devices, planned.weights(100)) == ((), {"CPU": 100})


def test_layers_to_offload_without_a_gpu_are_a_warning(
    plan: Callable[..., LoadPlan], caplog: pytest.LogCaptureFixture
) -> None:
    plan(gpu_layers=99, hardware=Hardware(devices=()))
    plan(2**40, gpu_layers=99)
    assert not caplog.records
    plan(gpu_layers=99)
    assert caplog.messages == ["--gpu-layers has no effect: this build of llama.cpp sees no GPU"]


def test_a_large_gpu_has_all(plan: Callable[..., LoadPlan]) -> None:
    planned = plan(2**40)
    assert (planned.placement.gpu_layers, planned.placement.overrides) == (-1, ())


def test_experts_leave_a_gpu_that_does_not_hold_them(plan: Callable[..., LoadPlan], model: Path) -> None:
    tensors = read_tensors(model)
    cells = layer_cells(read_header(model), "f16", "f16")
    layers = layer_bytes(tensors, cells, slots=1, context=256)
    planned = plan(MARGIN + sum(layer.dense for layer in layers) + output_bytes(tensors))
    assert (planned.placement.gpu_layers, len(planned.placement.overrides)) == (len(layers) + 1, len(layers))
    size = sum(tensors.values())
    assert planned.weights(size) == {"CPU": planned.on_host, "CUDA0": size - planned.on_host}
    assert planned.on_host >= experts(model)


def test_two_gpus_share_what_one_does_not_hold(plan: Callable[..., LoadPlan], model: Path) -> None:
    some = MARGIN + sum(read_tensors(model).values()) // 4
    planned = plan(some, some)
    assert sum(planned.placement.tensor_split) == planned.placement.gpu_layers
    assert all(planned.placement.tensor_split)


@pytest.mark.parametrize(
    "hardware", [Hardware(fit=False), Hardware(split_mode="row"), Hardware(tensor_split=(1,))], ids=repr
)
def test_what_the_operator_places_is_not_fitted(plan: Callable[..., LoadPlan], hardware: Hardware) -> None:
    planned = plan(0, hardware=hardware)
    assert (planned.placement.gpu_layers, planned.placement.overrides) == (-1, ())


def test_experts_that_the_operator_keeps_count_as_host_memory(plan: Callable[..., LoadPlan], model: Path) -> None:
    all_on_gpu, kept = plan(2**40), plan(2**40, hardware=Hardware(cpu_moe=ALL_LAYERS))
    assert kept.on_host - all_on_gpu.on_host == experts(model)


def test_only_weights_in_host_memory_are_locked(
    plan: Callable[..., LoadPlan], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_lock, "_STATUS", tmp_path / "none")
    monkeypatch.setattr(resource, "getrlimit", lambda _what: (2**19, 2**19))
    hardware = Hardware(load_mode="mlock")
    with pytest.raises(LoadError, match="--load-mode mlock needs 1 MiB of locked memory"):
        plan(hardware=hardware)
    assert plan(2**40, hardware=hardware).placement.gpu_layers == -1
