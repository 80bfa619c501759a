"""Real loads on a build for CPUs: overrides, load modes, devices and positions, and the tensors that a file lists."""

import ctypes
import logging
import os
from pathlib import Path
from typing import Any

import gguf
import llama_cpp
import numpy as np
import pytest

from engine.config import EngineConfig
from engine.errors import LoadError
from engine.hardware import ALL_LAYERS, Hardware, LoadMode, RopeScaling
from engine.llama.hardware.fitting import fitted
from engine.llama.hardware.loading import check_file
from engine.llama.hardware.model_file import read_tensors
from engine.llama.hardware.params import ModelParams, TensorOverride
from engine.llama.hardware.placement import Placement
from engine.llama.model import LlamaModel
from tests.engine.llama.hardware.loading import logits
from tests.engine.llama.hardware.test_placement import FakeDevice
from tests.models import model_path
from tests.random_model import finish


def config(**fields: Any) -> EngineConfig:
    return EngineConfig(slots=1, threads=1, **{"model": str(model_path()), "context": 256, **fields})


@pytest.fixture(scope="module")
def expected() -> list[float]:
    return logits(config())


PLACED = [
    Hardware(override_tensor=((r"ffn_.*", "CPU"),)),
    Hardware(override_tensor=((r"blk\.1\.", "CPU"), (r"output", "CPU"))),
    Hardware(cpu_moe=ALL_LAYERS),
    Hardware(cpu_moe=3),
    Hardware(devices=()),
    Hardware(split_mode="none"),
]


@pytest.mark.parametrize("hardware", PLACED, ids=lambda one: str(PLACED.index(one)))
def test_the_place_of_the_weights_changes_no_output(hardware: Hardware, expected: list[float]) -> None:
    assert logits(config(hardware=hardware)) == expected


@pytest.mark.parametrize("mode", ["auto", "none", "mmap", "mlock", "mmap+mlock", "direct-io"])
def test_every_load_mode_gives_the_same_output(mode: LoadMode, expected: list[float]) -> None:
    assert logits(config(hardware=Hardware(load_mode=mode))) == expected


def test_scaled_positions_change_the_output(expected: list[float]) -> None:
    assert logits(config(rope=RopeScaling(freq_scale=0.25))) != expected
    assert logits(config(rope=RopeScaling(type="none"))) == expected


def test_the_default_context_follows_the_scaled_positions() -> None:
    trained = LlamaModel(config(context=None), lambda _share: None)
    scaled = LlamaModel(config(context=None, rope=RopeScaling(freq_scale=0.5)), lambda _share: None)
    with trained, scaled:
        assert scaled.info.context == 2 * trained.info.context


REFUSED = [
    (Hardware(devices=("CUDA7",)), "--device CUDA7: there is no such device"),
    (Hardware(tensor_split=(1.0,) * 17), "--tensor-split has 17 shares for "),
    (Hardware(override_tensor=(("output", "CUDA7"),)), "there is no buffer type CUDA7, only CPU"),
]


@pytest.mark.parametrize(("hardware", "reason"), REFUSED, ids=repr)
def test_a_choice_that_the_machine_does_not_have_is_refused(hardware: Hardware, reason: str) -> None:
    with pytest.raises(LoadError, match=reason):
        LlamaModel(config(hardware=hardware), lambda _share: None)


def test_positions_without_a_factor_are_refused() -> None:
    with pytest.raises(LoadError, match="--rope-scaling linear needs --rope-freq-scale"):
        LlamaModel(config(rope=RopeScaling(type="linear")), lambda _share: None)


def test_an_unused_pattern_is_a_warning_and_the_model_loads(caplog: pytest.LogCaptureFixture) -> None:
    hardware = Hardware(override_tensor=(("fnn_up", "CPU"),))
    with caplog.at_level(logging.WARNING), LlamaModel(config(hardware=hardware), lambda _share: None):
        pass
    assert "fnn_up" in [record.__dict__.get("pattern") for record in caplog.records]


def test_the_tensors_are_those_of_the_file() -> None:
    reader = gguf.GGUFReader(model_path())
    assert read_tensors(model_path()) == {tensor.name: tensor.n_bytes for tensor in reader.tensors}


def test_the_tensors_of_all_parts_are_read(tmp_path: Path) -> None:
    for at, name in enumerate(["a", "b"], start=1):
        writer = gguf.GGUFWriter(tmp_path / f"m-{at:05}-of-00002.gguf", "llama")
        writer.add_tensor(name, np.zeros(at * 8, np.float32))
        finish(writer)
    assert read_tensors(tmp_path / "m-00001-of-00002.gguf") == {"a": 32, "b": 64}
    (tmp_path / "m-00002-of-00002.gguf").unlink()
    with pytest.raises(LoadError, match=r"m-00002-of-00002.gguf cannot be read as a GGUF file"):
        read_tensors(tmp_path / "m-00001-of-00002.gguf")


def fit_into(free: int, **fields: Any) -> Placement:
    settings = config(**fields)
    placement = Placement(settings.gpu_layers, settings.hardware.tensor_split, (), (FakeDevice(1, room=free),))
    return fitted(settings, placement, read_tensors(model_path()))


def test_the_fit_counts_the_files_tensors_and_its_cells() -> None:
    assert fit_into(2**40).gpu_layers == -1
    none = fit_into(2**30)
    assert (none.gpu_layers, none.tensor_split, none.overrides) == (0, (), ())
    weights = sum(read_tensors(model_path()).values())
    assert fit_into(2**30 + weights + 2**20, context=2**20).gpu_layers in range(3), "the cells count too"


def test_the_fit_refuses_a_file_whose_header_it_cannot_read(tmp_path: Path) -> None:
    (path := tmp_path / "m.gguf").write_bytes(b"GGUF")
    with pytest.raises(LoadError, match=f"^{path} cannot be fitted: the header ends early$"):
        fit_into(0, model=str(path))


@pytest.mark.parametrize("fields", [{"gpu_layers": 1}, {"hardware": Hardware(fit=False)}], ids=repr)
def test_layers_that_the_operator_has_placed_stay(fields: dict[str, Any]) -> None:
    assert fit_into(0, **fields).gpu_layers == fields.get("gpu_layers", -1)


def test_the_parameters_of_a_placement_end_as_c_expects() -> None:
    devices = (FakeDevice(11), FakeDevice(12))
    placement = Placement(3, (2, 1), (("up", "CPU"), ("down", "CPU")), devices)
    params = ModelParams(Hardware(devices=("CUDA0", "CUDA1"), split_mode="row"), placement)
    assert (params.c.n_gpu_layers, params.c.split_mode) == (3, llama_cpp.LLAMA_SPLIT_MODE_ROW)
    assert params.c.tensor_split[: llama_cpp.llama_max_devices()] == [2, 1] + [0] * 14
    listed = (ctypes.c_void_p * 3).from_address(params.c.devices)
    assert list(listed) == [11, 12, None]
    overrides = (TensorOverride * 3).from_address(params.c.tensor_buft_overrides)
    assert [override.pattern for override in overrides] == [b"up", b"down", None]
    assert [bool(override.buffer_type) for override in overrides] == [True, True, False]


def test_a_device_in_the_place_of_a_model_is_not_read() -> None:
    with pytest.raises(LoadError, match=f"^the model file {os.devnull} cannot be read: not a regular file$"):
        check_file(Path(os.devnull))


@pytest.mark.parametrize(
    ("architecture", "kind", "reason"),
    [
        ("llama", "adapter", "it is a LoRA adapter, which --lora adds to its model"),
        ("clip", "", "it is a projector for images or sound, which are not supported"),
        ("clip", "mmproj", "it is a projector for images or sound, which are not supported"),
        ("imatrix", "imatrix", "it is an importance matrix, which only serves to quantise a model"),
        ("of-next-year", "model", "unknown model architecture: 'of-next-year'"),
    ],
)
def test_a_file_that_is_no_model_is_named_as_what_it_is(
    tmp_path: Path, architecture: str, kind: str, reason: str
) -> None:
    path = tmp_path / "file.gguf"
    writer = gguf.GGUFWriter(path, architecture)
    if kind:
        writer.add_type(kind)
    writer.add_tensor("x.weight", np.ones((32, 32), np.float32))
    finish(writer)
    with pytest.raises(LoadError) as caught, LlamaModel(config(model=str(path)), lambda _share: None):
        pass
    assert str(caught.value) == f"{path} cannot be loaded: {reason}"


def test_a_file_whose_header_cannot_be_read_has_llama_cpps_reason(tmp_path: Path) -> None:
    path = tmp_path / "cut.gguf"
    path.write_bytes(model_path().read_bytes()[:100])
    with pytest.raises(LoadError) as caught, LlamaModel(config(model=str(path)), lambda _share: None):
        pass
    assert str(caught.value) == f"{path} cannot be loaded: failed to read key-value pairs"
