"""The simulated memory of a context: what llama.cpp really allocates, for every architecture family."""

import ctypes
import logging
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import llama_cpp
import pytest

from engine.config import EngineConfig
from engine.errors import LoadError
from engine.llama import metadata
from engine.llama.attention import AUTO, FLASH, NO_FLASH, Attention
from engine.llama.backend_sampling.samplers import TopKSamplers
from engine.llama.devices import all_devices
from engine.llama.log_bridge import LogCapture
from engine.llama.memory.buffers import HOST
from engine.llama.memory.contexts import Contexts, Room, simulator
from engine.llama.memory.parameters import all_cells, context_params
from engine.llama.memory.plan import plan_memory
from engine.llama.memory.simulation import Simulation
from engine.llama.model import LlamaModel
from tests.architectures.families import FAMILIES, quick_for_some
from tests.architectures.models import family_model

ROUNDING = 2**20 / 200
"""Half of a hundredth of a MiB: the most that llama.cpp's log leaves out of a buffer."""
_ALLOCATED = re.compile(r"(KV|RS|compute|output) buffer size = +([\d.]+) MiB")


def config(family: str, **fields: Any) -> EngineConfig:
    return EngineConfig(model=str(family_model(family)), **fields)


@pytest.fixture(scope="module", params=quick_for_some(family.name for family in FAMILIES))
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def model(family: str) -> Iterator[LlamaModel]:
    with LlamaModel(config(family, slots=3, context=256), lambda _share: None) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def simulation(model: LlamaModel, family: str) -> Iterator[Simulation]:
    params, info = llama_cpp.llama_model_default_params(), model.info
    path = str(family_model(family))
    with Simulation(path, params, architecture=info.architecture, vocabulary=info.vocabulary, gpus={}) as opened:
        yield opened


def allocated(model: LlamaModel, params: llama_cpp.llama_context_params) -> Counter[str]:
    """Return the bytes of the buffers of a real context, by kind."""
    with LogCapture(logging.DEBUG) as lines:
        context = llama_cpp.llama_init_from_model(model.handle, params)
    llama_cpp.llama_free(context)
    found: Counter[str] = Counter()
    for line in lines:
        for kind, size in _ALLOCATED.findall(line.text):
            found[kind] += round(float(size) * 2**20)
    return found


def contexts(settings: EngineConfig, simulation: Simulation) -> Contexts:
    return Contexts(settings, simulator(settings, AUTO, simulation), {HOST: Room(2**30, 1.0)})


def usable(attention: Attention, model: LlamaModel) -> Attention:
    """Return an implementation, or the other one where llama.cpp dies with flash attention."""
    return attention if metadata.takes_flash(model.handle) else NO_FLASH


def test_samplers_on_the_device_count(model: LlamaModel, simulation: Simulation) -> None:
    settings = EngineConfig(model="", slots=3)
    params = context_params(settings, all_cells(3, 256), usable(AUTO, model), full_windows=True)
    without, simulated = simulation.simulate(params).buffers, simulation.simulate(params, sampled=True).buffers
    with closing(TopKSamplers(3, model.info.vocabulary)) as samplers:
        samplers.put_into(params)
        real = allocated(model, params)
    assert simulated.cells == without.cells
    assert simulated.compute[HOST] > without.compute[HOST]
    assert simulated.compute[HOST] == pytest.approx(real["compute"] + real["output"], abs=4 * ROUNDING)


@pytest.mark.parametrize("cache", ["whole", "windows, snapshots", "unified"])
@pytest.mark.parametrize("attention", [AUTO, NO_FLASH], ids=["flash", "plain"])
@pytest.mark.parametrize(("slots", "context"), [(1, 256), (3, 1000), (8, 2048)])
def test_a_simulated_context_has_the_buffers_of_a_real_one(
    model: LlamaModel, simulation: Simulation, slots: int, context: int, attention: Attention, cache: str
) -> None:
    settings = EngineConfig(model="", slots=slots, kv_unified=cache == "unified")
    snapshots = 3 if cache == "windows, snapshots" else 0
    cells = all_cells(slots, context)
    attention = usable(attention, model)
    params = context_params(settings, cells, attention, full_windows=cache == "whole", snapshots=snapshots)
    real, simulated = allocated(model, params), simulation.simulate(params).buffers
    assert simulated.cells[HOST] == pytest.approx(real["KV"] + real["RS"], abs=4 * ROUNDING)
    assert simulated.compute[HOST] == pytest.approx(real["compute"] + real["output"], abs=4 * ROUNDING)


@pytest.mark.parametrize(
    ("family", "numbers"),
    [
        ("plain", 4 * 2 * (16 + 16)),
        ("gemma-3", 4 * 2 * (16 + 16)),
        ("deepseek-2", 4 * 40),  # the keys of latent attention hold the values
        ("lfm-2", 2 * 2 * (16 + 16)),  # two of four layers have no keys
        ("falcon-h1", 4 * 2 * (16 + 16)),
        ("mamba", 0),
    ],
    indirect=["family"],
)
@pytest.mark.parametrize(("kind", "bits"), [("f32", 32), ("f16", 16), ("q8_0", 8.5), ("q4_0", 4.5)])
def test_the_cells_of_a_token_are_exact_to_the_byte(
    simulation: Simulation, family: str, numbers: int, kind: str, bits: float
) -> None:
    settings = config(family, kv_type_k=kind, kv_type_v=kind)
    if kind[0] == "q" and family == "deepseek-2":  # 40 numbers are no whole blocks of 32
        with pytest.raises(LoadError, match="does not divide"):
            plan_memory(contexts(settings, simulation), 2048)
        return
    plan = plan_memory(contexts(settings, simulation), 2048)
    assert plan.token_bytes == numbers * bits / 8


@pytest.mark.parametrize(
    ("family", "snapshots"), [("qwen-3.5", 15), ("lfm-2", 15), ("jamba", 0), ("mamba", 0)], indirect=["family"]
)
def test_slots_keep_snapshots_where_llama_cpp_can(simulation: Simulation, family: str, snapshots: int) -> None:
    def planned(**fields: Any) -> int:
        settings = config(family, slots=3, context=256, **fields)
        return plan_memory(contexts(settings, simulation), 2048, recurrent=True).snapshots

    assert planned() == snapshots
    assert planned(speculation=False) == 0
    assert planned(kv_unified=True) == 0, "a shared cell would lose the roll-back of its source"


def test_a_file_that_is_gone_cannot_be_simulated() -> None:
    params = llama_cpp.llama_model_default_params()
    with pytest.raises(LoadError, match="cannot be simulated"):
        Simulation("/nowhere.gguf", params, architecture="llama", vocabulary=1, gpus={})


@pytest.mark.parametrize("family", ["plain"], indirect=True)
def test_cells_that_devices_divide_are_in_their_memory(model: LlamaModel, simulation: Simulation, family: str) -> None:
    """Two CPUs are the GPUs of `--split-mode tensor`."""
    cpu = all_devices()[0].handle
    devices = (ctypes.c_void_p * 3)(cpu, cpu)
    params = llama_cpp.llama_model_default_params()
    params.devices, params.n_gpu_layers = ctypes.cast(devices, ctypes.c_void_p), -1
    params.split_mode = llama_cpp.LLAMA_SPLIT_MODE_TENSOR
    context = context_params(EngineConfig(model="", slots=3), all_cells(3, 256), FLASH, full_windows=True)
    path, info, gpus = str(family_model(family)), model.info, {"GPU0": 0.75, "GPU1": 0.25}
    with Simulation(path, params, architecture=info.architecture, vocabulary=info.vocabulary, gpus=gpus) as divided:
        buffers = divided.simulate(context).buffers
    whole = simulation.simulate(context).buffers.cells[HOST]
    assert buffers.cells == {"GPU0": whole * 3 // 4, "GPU1": whole // 4}
    assert buffers.compute["GPU0"] == buffers.compute["GPU1"] > 0
