"""Mixture models: which tensors are experts, and that llama.cpp itself overrides these."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from engine.config import EngineConfig
from engine.hardware import ALL_LAYERS, Hardware
from engine.llama.hardware.fit import fit
from engine.llama.hardware.fitting import layer_bytes, output_bytes
from engine.llama.hardware.model_file import read_tensors
from engine.llama.hardware.overrides import buffer_for, overrides_of
from engine.llama.model import LlamaModel
from tests.architectures.models import family_model
from tests.engine.llama.hardware.loading import logits

FAMILIES = ("gpt-oss", "qwen-3-moe", "deepseek-2", "qwen-3-next")
_DEBUG = 5  # the level of llama.cpp's debug lines in its logger
_OVERRIDDEN = re.compile(r"tensor (\S+) \(.* buffer type overridden to CPU")


def overridden_by_llama_cpp(path: Path, hardware: Hardware, caplog: pytest.LogCaptureFixture) -> set[str]:
    """Load a model, and return the tensors that llama.cpp's log says it has overridden."""
    caplog.clear()
    with caplog.at_level(_DEBUG, "llama.cpp"):
        LlamaModel(EngineConfig(model=str(path), slots=1, context=256, hardware=hardware), lambda _share: None).close()
    return {match[1] for line in caplog.messages if (match := _OVERRIDDEN.search(line))}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "hardware",
    [
        Hardware(cpu_moe=ALL_LAYERS),
        Hardware(cpu_moe=2),
        Hardware(override_tensor=((r"blk\.[13]\.(attn|ffn_(up|gate)).*weight$", "CPU"), ("output", "CPU"))),
    ],
    ids=["all", "first", "own"],
)
def test_llama_cpp_overrides_the_same_tensors(
    family: str, hardware: Hardware, caplog: pytest.LogCaptureFixture
) -> None:
    path = family_model(family)
    expected = {name for name in read_tensors(path) if buffer_for(name, overrides_of(hardware))}
    assert expected
    assert overridden_by_llama_cpp(path, hardware, caplog) == expected


def test_shared_experts_and_dense_layers_are_no_experts() -> None:
    tensors = read_tensors(family_model("deepseek-2"))
    first, *others = layer_bytes(tensors, [], slots=1, context=0)
    assert first.experts == 0
    assert all(layer.experts > 0 for layer in others)
    experts = sum(size for name, size in tensors.items() if "_exps" in name)
    assert sum(layer.experts for layer in (first, *others)) == experts
    assert any("_shexp" in name for name in tensors)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_gpu_without_room_for_the_experts_gets_all_other_layers(family: str) -> None:
    tensors = read_tensors(family_model(family))
    layers, output = layer_bytes(tensors, [], slots=1, context=256), output_bytes(tensors)
    dense = sum(layer.dense for layer in layers) + output
    found = fit(layers, output, [dense], 0)
    assert found is not None
    assert (found.gpu_layers, found.cpu_moe) == (len(layers) + 1, len(layers))


@pytest.mark.parametrize("family", FAMILIES)
def test_experts_in_host_memory_change_no_output(family: str) -> None:
    path = family_model(family)
    config = EngineConfig(model=str(path), slots=1, threads=1, context=256)
    assert logits(replace(config, hardware=Hardware(cpu_moe=ALL_LAYERS))) == logits(config)
